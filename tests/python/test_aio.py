# SPDX-License-Identifier: Apache-2.0
import asyncio
import unittest

import forge
from base import Case
from forge import aio

PIPELINE = """name: tiny
params: {word: hello}
steps:
  one: {run: "WORK >a.txt", outputs: [a.txt]}
  two: {inputs: {x: one/a.txt}, run: "cat $x >b.txt", outputs: [b.txt]}
"""
READY = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done"


class Aio(Case):
    def test_run(self):
        """aio: run, its log, outputs, check, refusals"""
        async def main():
            run = await aio.run(["sh", "-c", "echo out; echo 1 >f"], stdin=b"x", check=True)
            self.assertEqual((run.status, await run.stdout(), await run.stderr()), ("succeeded", "out\n", ""))
            self.assertEqual(run.outputs[0].read_bytes(), b"1\n")
            self.assertEqual((await run.rerun(memory="99M")).record["limits"]["memory_bytes"], 99 << 20)
            with self.assertRaises(forge.CommandFailed):
                await aio.run(["false"], check=True)
            with self.assertRaises(forge.UsageError):
                await aio.run(["true"], memory="4 cows")
            with self.assertRaises(forge.UsageError):
                await aio.submit(["true"], memory="4 cows")
            self.assertEqual((await aio.get(run.run_id)).status, "succeeded")
            self.assertEqual(len(await aio.runs(limit=1)), 1)

        asyncio.run(main())

    def test_many(self):
        """aio: 60 at once"""
        async def main():
            runs = await asyncio.gather(*[aio.run(["echo", str(n)], memory="16M", pids=10) for n in range(60)])
            self.assertEqual({run.status for run in runs}, {"succeeded"})
            self.assertEqual(await runs[7].stdout(), "7\n")

        asyncio.run(main())

    async def begun(self, name):
        for _ in range(3000):
            found = await aio.runs(analysis=name)
            if found and found[0].sync.status == "running" and "ready" in await found[0].stdout():
                return found[0]
            await asyncio.sleep(0.02)
        self.fail("its run does not begin")

    def test_cancel(self):
        """aio: cancelling the task cancels the run, which is asked first and is over then"""
        async def main():
            task = asyncio.ensure_future(aio.run(["sh", "-c", READY], id="aio-c", grace=30))
            run = await self.begun("aio-c")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(forge.get("aio-c").status, "cancelled")
            self.assertEqual(forge.get("aio-c").stdout, "ready\nasked\n")
            self.assertEqual(run.run_id, forge.get("aio-c").run_id)

        asyncio.run(main())

    def test_cancel_early(self):
        """aio: cancelled at any moment of the start, nothing is left"""
        async def main():
            for n in range(12):
                task = asyncio.ensure_future(aio.run(["sleep", "60"], id=f"aio-e{n}"))
                await asyncio.sleep(0.002 * n)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                # Either there is no run, or it is over.
                self.assertEqual([r.status for r in forge.runs(analysis=f"aio-e{n}") if r.status != "cancelled"], [])

        asyncio.run(main())

    def test_cancel_submit(self):
        """aio: cancelled while it submits, the run is ended: nobody knows its id"""
        async def main():
            for n in range(8):
                task = asyncio.ensure_future(aio.submit(["sleep", "60"], id=f"aio-s{n}"))
                await asyncio.sleep(0.002 * n)
                task.cancel()
                try:
                    await (await task).kill()
                except asyncio.CancelledError:
                    pass
                self.assertEqual([r.status for r in forge.runs(analysis=f"aio-s{n}") if r.status != "cancelled"], [])

        asyncio.run(main())

    def test_resume(self):
        """aio: resume goes on after a kill"""
        async def main():
            gate = self.write("gate", "")
            run = await aio.submit(["sh", "-c", "[ ! -s gate ] || exit 0; sleep 60"], inputs="gate")
            await run.kill(now=True)
            gate.write_text("open")
            after = await run.resume(check=True)
            self.assertNotEqual(after.run_id, run.run_id)
            self.assertEqual(after.status, "succeeded")

        asyncio.run(main())

    def test_host(self):
        """aio: runtimes and health are those of forge.runtimes() and forge.health()"""
        async def main():
            self.assertEqual([r.name for r in await aio.runtimes()], [r.name for r in forge.runtimes()])
            checks, found = await asyncio.gather(aio.health(), aio.health())
            self.assertEqual([c.name for c in checks], [c.name for c in forge.health()])
            self.assertIsInstance(found[0], forge.HealthCheck)
            with self.assertRaises(forge.CliError):
                await aio.health(config="no-such.yaml")

        asyncio.run(main())

    def test_pipelines(self):
        """aio: pipelines: run, status, outputs, failures"""
        async def main():
            self.write("pipeline.yaml", PIPELINE.replace("WORK", "true aio; echo $word"))
            self.assertNotIn("cached", [t.state for t in await aio.pipelines.status()])
            seen = []
            result = await aio.pipelines.run(on_event=lambda e: seen.append(e["event"]), check=True)
            self.assertEqual((result.counts["done"], result.tasks["two"].state), (2, "done"))
            self.assertEqual((seen[0], seen[-1]), ("begin", "end"))
            self.assertEqual([t.state for t in await aio.pipelines.status()], ["cached", "cached"])
            (output,) = await aio.pipelines.outputs(copy="results")
            self.assertEqual((output.path, output.read_bytes()), ("b.txt", b"hello\n"))
            self.assertEqual([p.read_text() for p in (self.dir / "results").rglob("b.txt")], ["hello\n"])
            other = await aio.pipelines.run(self.dir / "pipeline.yaml", params={"word": 7}, only="one", cwd="/")
            self.assertEqual(other.tasks["one"].state, "done")
            self.write("pipeline.yaml", PIPELINE.replace("WORK", "exit 3"))
            with self.assertRaisesRegex(forge.pipelines.PipelineFailed, "one: .*exit code 3"):
                await aio.pipelines.run(check=True)
            self.write("pipeline.yaml", PIPELINE.replace("run:", "rum:", 1))
            with self.assertRaisesRegex(forge.CliError, r"pipeline.yaml:4:.*rum"):
                await aio.pipelines.run()
            with self.assertRaisesRegex(forge.CliError, r"pipeline.yaml:4:.*rum"):
                await aio.pipelines.status()

        asyncio.run(main())

    def test_pipelines_cancel(self):
        """aio: pipelines: cancelling the task, and an exception in on_event, end its runs"""
        self.write("pipeline.yaml", PIPELINE.replace("WORK", "sleep 60; echo $word"))

        async def main():
            started = asyncio.Event()
            task = asyncio.ensure_future(
                aio.pipelines.run(on_event=lambda e: started.set() if e["event"] == "run" else None))
            await started.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(forge.runs(running=True), [])

            def fail(event):
                if event["event"] == "run":
                    raise RuntimeError("from the caller")

            with self.assertRaisesRegex(RuntimeError, "from the caller"):
                await aio.pipelines.run(on_event=fail)
            self.assertEqual(forge.runs(running=True), [])

        asyncio.run(main())

    def test_time_out(self):
        """aio: asyncio.wait_for() ends the run"""
        async def main():
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.run(["sleep", "60"], id="aio-t"), 0.5)
            self.assertEqual(forge.get("aio-t").status, "cancelled")

        asyncio.run(main())

    def test_submit(self):
        """aio: submit, follow, wait, kill; cancelling wait() leaves the run"""
        async def main():
            (self.dir / "gate").mkdir()
            (self.dir / "gate").chmod(0o755)
            shut = self.write("gate/shut", "")
            run = await aio.submit(
                ["sh", "-c", "echo a; while [ -e gate/shut ]; do sleep 0.02; done; printf 'b\\377' >&2"], inputs="gate")
            with self.assertRaises(forge.NotOver):
                await run.wait(timeout=0.1)
            waiting = asyncio.ensure_future(run.wait())
            await asyncio.sleep(0.2)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            lines = []
            async for line in run.follow():
                lines.append((line.stream, line.data))
                if shut.exists():
                    self.assertFalse(run.sync.is_over)
                    shut.unlink()
            self.assertEqual(lines, [("stdout", b"a"), ("stderr", b"b\xff")])
            self.assertEqual((await run.wait(check=True)).status, "succeeded")
            other = await aio.submit(["sh", "-c", "echo a; exec sleep 60"])
            async for line in other.follow("stdout"):
                break
            self.assertEqual((await other.kill()).status, "cancelled")

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
