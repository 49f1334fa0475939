// The functions of the dashboard that need no page. node unit.test.mjs; WEB_PURE is the bundle of web/src/pure.ts.
// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";

const f = await import(process.env.WEB_PURE);
const src = process.env.WEB_SRC;

test("text: controls and characters that change the direction are shown", () => {
	assert.equal(f.visible("a\u0000b\u001b[31m\u007f\u0085"), "a^@b^[[31m^?⟨U+0085⟩");
	assert.equal(f.visible("x\u202egnp.exe\u2066y\u200b"), "x⟨U+202E⟩gnp.exe⟨U+2066⟩y⟨U+200B⟩");
	assert.equal(f.visible("new\nline"), "new^Jline");
	assert.equal(f.visibleLines("a\r\nb\tc\u0007"), "a\nb\tc^G");
	assert.equal(f.visible("\ud800 \u{e0041}"), "⟨U+D800⟩ ⟨U+E0041⟩");
	assert.equal(f.visible("naïve 日本語 👩‍🔬"), "naïve 日本語 👩‍🔬");
});

test("text: a cut does not halve a character", () => {
	assert.equal(f.cut("ab😀", 3), "ab…");
	assert.equal(f.cut("abc", 3), "abc");
});

test("text: a command is quoted as a shell takes it", () => {
	assert.equal(f.shellQuote(["python3", "-c", "print('x')"]), "python3 -c 'print('\\''x'\\'')'");
});

test("ansi: colours become classes of a fixed list", () => {
	const { pieces } = f.parseAnsi("\u001b[31mred\u001b[1;42mboth\u001b[0mplain");
	assert.deepEqual(pieces, [{ text: "red", className: "af1" }, { text: "both", className: "af1 ab2 abold" }, { text: "plain", className: "" }]);
	for (const colour of ["38;5;196", "38;2;1;2;3", "48;5;255", "38;2;999;-1;x", "38;5;999", "38"])
		for (const p of f.parseAnsi(`\u001b[${colour}mx`).pieces) assert.match(p.className, /^(a[fb]\d{1,2})?$/);
});

test("ansi: no escape sequence reaches the page as one", () => {
	const cases = ["\u001b]0;title\u0007text", "\u001b]8;;http://evil\u001b\\text", "\u001b[2J\u001b[Htext", "\u001bPq#0\u001b\\text", "\u001b[?1049htext"];
	for (const c of cases) assert.equal(f.parseAnsi(c).pieces.map((p) => p.text).join(""), "text", JSON.stringify(c));
	assert.equal(f.parseAnsi("\u001b[").pieces[0].text, "^[[");
	assert.ok(!/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(f.parseAnsi("\u001b]" + "x".repeat(9000)).pieces.map((p) => p.text).join("")));
});

test("ansi: a style goes on in the next line, a carriage return overwrites", () => {
	const first = f.parseAnsi("\u001b[32mgreen");
	assert.equal(f.parseAnsi("still", first.style).pieces[0].className, "af2");
	assert.equal(f.parseAnsi("10 %\r50 %\r100 %").pieces[0].text, "100 %");
	assert.equal(f.parseAnsi("dos\r").pieces[0].text, "dos");
});

test("ansi: the work is bounded on hostile lines", () => {
	const began = performance.now();
	assert.ok(f.parseAnsi("\u001b[31m".repeat(200000)).pieces.length <= 501);
	assert.ok(f.parseAnsi("\u001b[31mx".repeat(200000)).pieces.length <= 501);
	f.parseAnsi("\u001b]".repeat(20000));
	f.parseAnsi("\u001b[" + ";".repeat(500000));
	assert.ok(performance.now() - began < 5000);
});

test("csv: quotes, separators, line ends", () => {
	assert.deepEqual(f.parseCsv('a,b\n"x,""y""\nz",2\r\n').rows, [["a", "b"], ['x,"y"^Jz', "2"]]);
	assert.deepEqual(f.parseCsv("a\tb\n1\t2").rows, [["a", "b"], ["1", "2"]]);
	assert.deepEqual(f.parseCsv("").rows, []);
	assert.deepEqual(f.numericColumns([["n", "v"], ["x", "1.5"], ["y", "-2e3"]]), [false, true]);
});

test("csv: rows, columns and cells are limited", () => {
	assert.equal(f.parseCsv("a,b\n".repeat(100000)).rows.length, 200);
	assert.equal(f.parseCsv("a,b\n".repeat(100000)).truncated, true);
	const wide = f.parseCsv(",".repeat(1000000));
	assert.ok(wide.truncated && (wide.rows[0] ?? []).length <= 40);
	const long = f.parseCsv("x".repeat(5000000));
	assert.ok(long.rows[0][0].length <= 320);
	assert.equal(f.parseCsv('"never closed'.repeat(1000)).rows[0].length, 1);
});

test("format: bytes, durations, times", () => {
	assert.equal(f.bytes(0), "0 B");
	assert.equal(f.bytes(1536), "1.50 KiB");
	assert.equal(f.bytes(2 ** 31), "2.00 GiB");
	assert.equal(f.bytes(null), "–");
	assert.equal(f.duration(0.0421), "42 ms");
	assert.equal(f.duration(61), "1 min 1 s");
	assert.equal(f.duration(7260), "2 h 1 min");
	assert.equal(f.duration(200000), "2 d 7 h");
	const now = Date.UTC(2026, 0, 2);
	assert.equal(f.relative(now - 1000, now), "just now");
	assert.equal(f.relative(now - 42000, now), "40 s ago");
	assert.equal(f.relative(now - 3600e3, now), "1 h ago");
	assert.equal(f.relative(now - 400 * 86400e3, now), "2024-11-28");
	assert.equal(f.relative(NaN, now), "–");
});

test("format: axes have round steps and hold the highest value", () => {
	for (const top of [0.003, 1, 7, 99, 1000, 2 ** 31, 3.3e9, 1e15])
		for (const base of [2, 10]) {
			const t = f.ticks(top, 4, base);
			assert.ok(t.length >= 2 && t.length <= 5 && t[0] === 0 && t[t.length - 1] >= top * 0.999999, `${top} ${base} ${t}`);
		}
	assert.deepEqual(f.timeTicks(60, 4), [0, 15, 30, 45, 60]);
});

test("format: limits that a verdict suggests", () => {
	assert.deepEqual(f.suggestedLimits("Killed: memory 64.00 MiB of 64.00 MiB after 114 ms. Retry with --memory 128M."), { memory: "128M" });
	assert.deepEqual(f.suggestedLimits("Retry with --timeout 4s, or --cpu-time 1h."), { timeout: "4s", cpu_time: "1h" });
	assert.deepEqual(f.suggestedLimits("--memory; rm -rf / --memory $(x)"), {});
	assert.deepEqual(f.suggestedLimits(null), {});
	assert.equal(f.sizeText(2 ** 31), "2G");
	assert.equal(f.sizeText(64 * 2 ** 20), "64M");
	assert.equal(f.durationText(5400), "90m");
});

test("graph: every task stands right of what it needs", () => {
	const tasks = [{ id: "a", needs: [] }, { id: "b", needs: ["a"] }, { id: "c", needs: ["a"] }, { id: "d", needs: ["b", "c", "a", "gone"] }];
	const l = f.layout(tasks);
	assert.equal(l.layers, 3);
	assert.equal(l.edges.length, 5);
	for (const [from, to] of l.edges) assert.ok(l.nodes.get(from).layer < l.nodes.get(to).layer);
	const places = [...l.nodes.values()].map((n) => `${n.layer} ${n.row}`);
	assert.equal(new Set(places).size, 4);
});

test("graph: cycles and large pipelines end", () => {
	assert.equal(f.layout([{ id: "a", needs: ["b"] }, { id: "b", needs: ["a"] }, { id: "c", needs: ["c"] }]).nodes.size, 3);
	assert.equal(f.layout([]).nodes.size, 0);
	const many = Array.from({ length: 2000 }, (_, i) => ({ id: "t" + i, needs: i ? ["t" + Math.floor(i / 3)] : [] }));
	assert.equal(f.layout(many).nodes.size, 2000);
});

test("notebook: text and pictures only", () => {
	const parts = f.parseNotebook(JSON.stringify({ cells: [{ cell_type: "markdown", source: ["<script>alert(1)</script>"] },
		{ cell_type: "code", execution_count: 1, source: "1", outputs: [
			{ output_type: "display_data", data: { "text/html": "<b>x</b>", "text/plain": "x" } },
			{ output_type: "display_data", data: { "image/png": "AAAA\nBBBB" } },
			{ output_type: "display_data", data: { "image/svg+xml": "<svg onload=x>" } },
			{ output_type: "display_data", data: { "image/png": "\" onerror=\"x" } }] }] }));
	assert.deepEqual(parts.map((p) => p.kind), ["markdown", "code", "text", "note", "image", "note"]);
	assert.equal(parts.filter((p) => p.kind === "image").length, 1);
	assert.equal(parts.find((p) => p.kind === "image").base64, "AAAABBBB");
	assert.ok(!JSON.stringify(parts).includes("<b>x</b>"));
	assert.throws(() => f.parseNotebook("[]"));
	assert.throws(() => f.parseNotebook("{"));
});

test("log: lines are joined across chunks, and the window stays small", () => {
	let w = f.append(f.EMPTY_LOG, "one\ntw", 6);
	w = f.append(w, "o\nthree\n", 14);
	assert.deepEqual(w.lines.map((l) => [l.offset, l.text]), [[0, "one"], [4, "two"], [8, "three"]]);
	for (let i = 0; i < 200; i++) w = f.append(w, "x".repeat(99) + "\n".repeat(1), w.end + 100);
	w = f.append(w, "y\n".repeat(100000), w.end + 200000);
	assert.ok(w.lines.length <= f.LOG_LINES);
	assert.equal(w.start, w.lines[0].offset);
	assert.equal(w.end, 14 + 20000 + 200000);
});

test("log: one line without an end keeps its last part only", () => {
	let w = f.EMPTY_LOG;
	for (let i = 0; i < 64; i++) w = f.append(w, "x".repeat(1 << 18), w.end + (1 << 18));
	assert.equal(w.lines.length, 1);
	assert.ok(w.lines[0].text.length <= f.LOG_CHARS);
	assert.equal(w.end, 64 << 18);
	assert.equal(w.start, w.end - f.LOG_CHARS);
});

test("log: earlier parts go in front; offsets of what was no UTF-8 stay inside", () => {
	let w = f.append({ start: 10, end: 10, lines: [] }, "ree\nfour\n", 19);
	w = f.prepend(w, "one\ntwo\nth", 0);
	assert.deepEqual(w.lines.map((l) => l.text), ["one", "two", "three", "four"]);
	assert.equal(w.start, 0);
	const bad = f.append(f.EMPTY_LOG, "\ufffd\n".repeat(10000), 20000);
	assert.ok(bad.lines.every((l) => l.offset <= 20000) && bad.start <= bad.end);
	const range = f.decodeRange(new Uint8Array([0xa9, 0x61, 0xc3]), false);
	assert.deepEqual(range, { text: "a\ufffd", skipped: 1 });
});

test("no source of the dashboard writes HTML or evaluates text", () => {
	const files = [...readdirSync(src), ...readdirSync(join(src, "pages")).map((n) => "pages/" + n)].filter((n) => /\.(tsx?|html|svg)$/.test(n));
	assert.ok(files.length > 15);
	for (const name of files) {
		const text = readFileSync(join(src, name), "utf8");
		assert.ok(!/dangerouslySet|innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function|javascript:/i.test(text), name);
	}
	const html = readFileSync(join(src, "index.html"), "utf8");
	assert.ok(!/<script>|style=|\son\w+=|https?:/.test(html));
	assert.ok(!/url\(|@import|https?:/.test(readFileSync(join(src, "app.css"), "utf8")));
});
