// What the browser tests look at: a FORGE_HOME with real runs, servers, and the commands on it.
// SPDX-License-Identifier: Apache-2.0
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { createServer } from "node:http";
import { join } from "node:path";

export const dir = mkdtempSync(join(tmpdir(), "forge-web-"));
chmodSync(dir, 0o755);
const home = join(dir, "home"), config = join(dir, "forge.yaml");
mkdirSync(home, { mode: 0o700 });
writeFileSync(config, `version: 1\nworkdir: ${dir}/work/{run_id}\nhost:\n  budget: {memory: 6G, cpus: 12}\nruntimes:\n  python3:\n    kind: system\n    needs: [python3]\n    commands: [python3]\n`);
mkdirSync(join(dir, "work"));
export const env = { ...process.env, FORGE_HOME: home, FORGE_CONFIG: config, HOME: dir };
delete env.FORGE_STORE;

export function forge(...args) {
	return execFileSync(process.env.FORGE, args, { env, cwd: dir, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], maxBuffer: 1 << 28 }).trim();
}
/* A run that may fail; its id. */
export function ran(id, args, command) {
	const p = spawnSync(process.env.FORGE, ["run", "-q", "--json", "--cpus", "0.5", "--id", id, ...args, "--", ...command], { env, cwd: dir, encoding: "utf8", maxBuffer: 1 << 28 });
	const found = /"run_id": ?"([0-9a-z]{26})"/.exec(p.stdout);
	if (!found) throw new Error(`${id} did not run: ${p.stderr}`);
	return found[1];
}
export const submitted = (id, args, command) => forge("submit", "--cpus", "0.5", "--id", id, ...args, "--", ...command);
export const show = (id) => JSON.parse(forge("show", "--json", id));

export async function until(what, seconds, ask) {
	const end = Date.now() + seconds * 1000;
	for (;;) {
		let value = null, error = null;
		try {
			value = await ask();
		} catch (e) {
			error = e;
		}
		if (value) return value;
		if (Date.now() > end) throw new Error(`after ${seconds} s: ${what}${error ? ": " + error.message : ""}`);
		await new Promise((r) => setTimeout(r, 50));
	}
}

const servers = new Set();
/* forge serve; resolves when it answers. */
export async function serve(listen = "127.0.0.1:0", more = [], where = {}) {
	const p = spawn(process.env.FORGE, ["serve", "--json", "--listen", listen, ...more], { env: { ...env, ...where }, cwd: dir, stdio: ["ignore", "pipe", "pipe"] });
	let out = "", err = "";
	p.stdout.on("data", (d) => (out += d));
	p.stderr.on("data", (d) => (err += d));
	const server = { process: p, ended: new Promise((r) => p.on("exit", r)), errors: () => err };
	servers.add(server);
	await until("forge serve does not answer: " + err, 30, () => {
		if (p.exitCode !== null || p.signalCode) throw new Error("it ended: " + err);
		return out.includes("\n");
	});
	Object.assign(server, JSON.parse(out));
	server.stop = async (signal = "SIGTERM") => {
		servers.delete(server);
		p.kill(signal);
		await server.ended;
	};
	return server;
}

export async function leave() {
	for (const s of [...servers]) await s.stop();
	for (const line of forge("ps", "--running", "--json", "-n", "100").split("\n").filter(Boolean))
		try {
			forge("kill", JSON.parse(line).run_id);
		} catch {
			/* it ended by itself */
		}
	await until("all runs end", 30, () => forge("ps", "--running", "--json", "-n", "5") === "");
	listener.close();
	rmSync(dir, { recursive: true, force: true });
}

/* What a payload would like to ask: nobody may. */
export const spy = { asked: [], port: 0 };
const listener = createServer((request, answer) => {
	spy.asked.push(request.url);
	answer.end();
});
await new Promise((r) => listener.listen(0, "127.0.0.1", r));
spy.port = listener.address().port;

/* ---- the runs ---- */

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const BAD = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>";
const HOSTILE = `
printf '%s\\n' '${BAD}'
printf '\\033[31mred\\033[0m \\033]0;title\\007\\033[38;2;255;255;255;48;2;255;255;255mseen\\033[0m\\n'
printf 'rtl \\342\\200\\256gnp.exe bell \\007 nul \\000 bad \\377\\376 end\\n'
printf 'done 10 %%\\rdone 100 %%\\n'
printf '%s\\n' '${BAD}' >&2
printf 'name,value\\n"%s",=cmd()\\n' '${BAD}' >data.csv
printf '%s<h1>Page</h1><img src="http://127.0.0.1:${spy.port}/x.png"><script>top.pwned=1;parent.document.title="x"</script><a href="javascript:alert(1)">x</a>' '${BAD}' >page.html
printf '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 60 20" onload="window.pwned=1"><script>window.top.pwned=1</script><rect width="60" height="20" fill="teal"/></svg>' >pic.svg
printf '%s' '{"nbformat":4,"cells":[{"cell_type":"markdown","source":"# Title ${BAD}"},{"cell_type":"code","execution_count":1,"source":"1","outputs":[{"output_type":"display_data","data":{"text/html":"${BAD}","text/plain":"plain"}},{"output_type":"display_data","data":{"image/png":"${PNG}"}},{"output_type":"display_data","data":{"application/javascript":"window.pwned=1"}}]}]}' >book.ipynb
echo x >'<img src=x onerror=window.pwned=1>.txt'
echo x >"$(printf 'rtl\\342\\200\\256gpj.txt')"
echo x >"$(printf 'two\\nlines.txt')"
echo x >"$(printf 'bad\\377name.txt')"
echo '${BAD}' >notes.md
exit 3
`;

export function makeRuns() {
	const runs = {};
	writeFileSync(join(dir, "hostile.sh"), HOSTILE);
	writeFileSync(join(dir, "input.txt"), "an input\n");
	runs.first = ran("first-of-many", [], ["true"]);
	for (let i = 0; i < 52; i++) ran("many-" + i, ["-o", "none"], ["true"]);
	runs.good = ran("good", ["-i", "input.txt", "-o", "*", "-r", "python3"], ["python3", "-c",
		`import base64,time\nopen("table.csv","w").write("gene,score\\n"+"".join("g%d,%d.5\\n"%(i,i) for i in range(500)))\nopen("plot.png","wb").write(base64.b64decode("${PNG}"))\nopen("readme.txt","w").write("A text.\\n")\nfor i in range(40): print("line", i)\n`]);
	runs.hog = ran("hog", ["--memory", "64M"], ["python3", "-c", "a=bytearray(200<<20)"]);
	runs.hostile = ran("hostile", ["-i", "hostile.sh", "-o", "*"], ["bash", "hostile.sh"]);
	runs.oneline = ran("one-line", ["-o", "none", "--memory", "512M"], ["sh", "-c", "head -c 70000000 /dev/zero | tr '\\0' x"]);
	runs.binary = ran("binary", ["-o", "none"], ["head", "-c", "3000000", "/dev/urandom"]);
	runs.live = submitted("live", ["--timeout", "20m", "--memory", "256M"], ["bash", "-c",
		'i=0; while [ ! -e stop ]; do i=$((i+1)); printf "\\033[32mstep\\033[0m %d\\n" $i; sleep 0.2; done; echo last words']);
	runs.victim = submitted("victim", ["--timeout", "20m", "--memory", "256M"], ["sleep", "1200"]);
	runs.waiting = submitted("waiting", ["--memory", "6G", "--priority", "-10"], ["true"]);
	writeFileSync(join(dir, "pipeline.yaml"), `name: small
steps:
  words:
    run: echo one two three >words.txt
    outputs: [words.txt]
  count:
    foreach: {n: [a, b, c]}
    inputs: {words: words/words.txt}
    run: wc -w $words >count-$n.txt
    outputs: ["count-$n.txt"]
  bad:
    inputs: {words: words/words.txt}
    run: exit 4
    outputs: [never.txt]
  sum:
    inputs: {counts: "count/count-*.txt"}
    run: cat $counts/* >sum.txt
    outputs: [sum.txt]
`);
	runs.pipeline = spawnSync(process.env.FORGE, ["pipeline", "run", "pipeline.yaml"], { env, cwd: dir, encoding: "utf8" });
	forge("runtime", "check", "python3");
	forge("health", "check");
	return runs;
}

/* ---- a store with a million runs ---- */

export const MANY = 1000000;
/*
 * The rows are made by SQL, in the tables that a run has made. Every 50th run has failed, every 1,000th was killed for its memory; one
 * has another name, and one has used the most memory. The environment of this FORGE_HOME.
 */
export function makeMany() {
	const where = { FORGE_HOME: join(dir, "many") };
	mkdirSync(where.FORGE_HOME, { mode: 0o700 });
	execFileSync(process.env.FORGE, ["run", "-q", "--id", "newest", "--", "true"], { env: { ...env, ...where }, cwd: dir });
	execFileSync("/usr/bin/python3", ["-c", `
import sqlite3, sys
db = sqlite3.connect(sys.argv[1] + "/forge.db", isolation_level=None)
db.executescript("""
PRAGMA synchronous = OFF;
BEGIN;
CREATE TEMP TABLE n AS WITH RECURSIVE s(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM s WHERE i < ${MANY} - 1)
    SELECT i, printf('00%024d', i) AS id, CASE i WHEN 123456 THEN 'needle' ELSE 'nightly-' || (i % 1000) END AS name,
    CASE WHEN i % 1000 = 9 THEN 'killed' WHEN i % 50 = 7 THEN 'failed' ELSE 'succeeded' END AS status,
    CASE WHEN i % 1000 = 9 THEN 'memory' ELSE 'exit' END AS reason,
    CASE i WHEN 654321 THEN 5000000000 ELSE 1000000 + i * 7919 % 1000003 END AS memory FROM s;
INSERT INTO analyses SELECT DISTINCT name, '2026-01-01T00:00:00.000Z' FROM n;
INSERT INTO runs (run_id, analysis_id, status, reason, notes, executor, host, username, created_at, started_at, ended_at, exit_code,
    wall_usec, memory_peak, record)
    SELECT id, name, status, reason, status || ' in 2 ms', 'local', 'here', 'me', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.010Z',
    '2026-01-01T00:00:00.020Z', 0, 2000 + i % 977, memory, printf('{"run_id":"%s","analysis_id":"%s","status":"%s","reason":"%s",'
    || '"completion_notes":"%s in 2 ms","command":["true"],"executor":"local","host":"here","user":"me","created_at":"2026-01-01T00:00:00.000Z",'
    || '"started_at":"2026-01-01T00:00:00.010Z","ended_at":"2026-01-01T00:00:00.020Z","usage":{"wall_seconds":0.002,"memory_peak_bytes":%d}}',
    id, name, status, reason, status, memory) FROM n;
COMMIT;
""")
`, where.FORGE_HOME]);
	return where;
}
