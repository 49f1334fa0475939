# SPDX-License-Identifier: Apache-2.0
import forge
from base import Case
from forge import pipelines

FILE = """name: tiny
params: {word: hello}
steps:
  one:
    run: echo $word >a.txt
    outputs: [a.txt]
  two:
    inputs: {x: one/a.txt}
    run: cat $x $x >b.txt
    outputs: [b.txt]
"""


class Pipelines(Case):
    def test_run(self):
        """pipelines: run, status, outputs"""
        # A result of another test must not be found.
        self.write("pipeline.yaml", FILE.replace("echo $word", "true first; echo $word"))
        self.assertNotIn("cached", [t.state for t in pipelines.status()])
        seen = []
        result = pipelines.run(on_event=lambda e: seen.append(e["event"]), check=True)
        self.assertEqual((result.counts["done"], result.tasks["two"].state), (2, "done"))
        self.assertEqual((seen[0], seen[-1]), ("begin", "end"))
        self.assertTrue(result.tasks["one"].run().succeeded)
        again = pipelines.run()
        self.assertEqual((again.counts["cached"], again.counts["done"], again.tasks["one"].state), (2, 0, "cached"))
        self.assertEqual([t.state for t in pipelines.status()], ["cached", "cached"])
        (output,) = pipelines.outputs(copy="results")
        self.assertEqual((output.path, output.read_bytes()), ("b.txt", b"hello\nhello\n"))
        self.assertEqual([p.read_text() for p in (self.dir / "results").rglob("b.txt")], ["hello\nhello\n"])
        with self.assertRaises(forge.ForgeError):
            pipelines.outputs(copy="results")
        other = pipelines.run(self.dir / "pipeline.yaml", params={"word": "x"}, only="one", cwd="/")
        self.assertEqual(other.tasks["one"].state, "done")

    def test_failure(self):
        """pipelines: a step that fails is an exception with its sentence; a wrong file an error with its place"""
        self.write("pipeline.yaml", FILE.replace("cat $x $x", "exit 3; cat $x"))
        result = pipelines.run()
        self.assertEqual((result.succeeded, result.tasks["two"].state), (False, "failed"))
        with self.assertRaisesRegex(pipelines.PipelineFailed, "two: .*exit code 3"):
            result.check()
        self.write("pipeline.yaml", FILE.replace("run:", "rum:", 1))
        with self.assertRaisesRegex(forge.ForgeError, r"pipeline.yaml:5:.*rum"):
            pipelines.run()
        with self.assertRaisesRegex(forge.ForgeError, r"pipeline.yaml:5:.*rum"):
            pipelines.status()

    def test_exception(self):
        """pipelines: an exception in on_event ends its runs"""
        self.write("pipeline.yaml", FILE.replace("echo $word", "sleep 60; echo $word"))

        def fail(event):
            if event["event"] == "run":
                raise RuntimeError("from the caller")

        with self.assertRaisesRegex(RuntimeError, "from the caller"):
            pipelines.run(on_event=fail)
        self.assertEqual(forge.runs(running=True), [])

    def test_resume(self):
        """resume: a step goes on with its pipeline"""
        self.write("pipeline.yaml", FILE.replace("cat $x $x", 'python3 -c "b = bytearray(60 << 20)"; cat $x')
                   + "    limits: {memory: 32M}\n")
        result = pipelines.run()
        step = result.tasks["two"].run()
        self.assertEqual(step.reason, "memory")
        after = step.resume(memory="256M", check=True)
        self.assertEqual(after.limits["memory_bytes"], 256 << 20)
