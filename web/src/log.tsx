// The log of a run: a bounded part of it in the page, followed live, searched, coloured by fixed classes.
// SPDX-License-Identifier: Apache-2.0
import { memo } from "./memo";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, request, ticket } from "./api";
import { parseAnsi, Piece, PLAIN, Style } from "./ansi";
import { bytes, count } from "./format";
import { append, decodeRange, EMPTY_LOG, Line, LOG_CHUNK, LogWindow, prepend } from "./logwindow";
import { Icon } from "./ui";

const LINE_CUT = 2000, LINE_MORE = 16384;

interface Parsed { pieces: Piece[]; next: Style; cut: boolean }

/* Reads the frames of an event stream. A frame larger than any that the server sends ends it. */
async function readEvents(body: ReadableStream<Uint8Array>, onEvent: (event: string, data: string) => void): Promise<void> {
	const reader = body.getReader(), decoder = new TextDecoder();
	let rest = "", event = "message", data = "";
	for (;;) {
		const { done, value } = await reader.read();
		if (done) return;
		rest += decoder.decode(value, { stream: true });
		if (rest.length > 8 << 20) throw new Error("an event that is too long");
		let at = 0;
		for (let nl = rest.indexOf("\n", at); nl >= 0; nl = rest.indexOf("\n", at)) {
			const line = rest.slice(at, rest[nl - 1] === "\r" ? nl - 1 : nl);
			at = nl + 1;
			if (line === "") {
				if (data !== "") onEvent(event, data);
				event = "message";
				data = "";
			} else if (line.startsWith("event:")) event = line.slice(6).trim();
			else if (line.startsWith("data:")) data += (data ? "\n" : "") + line.slice(5).replace(/^ /, "");
		}
		rest = rest.slice(at);
	}
}

async function readRange(id: string, stream: string, from: number, to: number): Promise<{ text: string; start: number }> {
	const answer = await request(`/api/v1/runs/${id}/logs/${stream}`, { headers: { Range: `bytes=${from}-${to - 1}` } });
	const data = new Uint8Array(await answer.arrayBuffer()).subarray(0, to - from);
	const { text, skipped } = decodeRange(data, from === 0);
	return { text, start: from + skipped };
}

/* The last part; it begins with a whole line when there is one. */
/* Bytes at the end that are the beginning of a character, whose rest is not written yet. */
function half(data: Uint8Array): number {
	for (let i = 1; i <= 3 && i <= data.length; i++) {
		const b = data[data.length - i]!;
		if ((b & 0xc0) !== 0x80) return (b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : b >= 0xc0 ? 2 : 1) > i ? i : 0;
	}
	return 0;
}

async function readTail(id: string, stream: string, isLive: boolean): Promise<{ window: LogWindow; size: number }> {
	const answer = await request(`/api/v1/runs/${id}/logs/${stream}?tail=${LOG_CHUNK}`);
	let data = new Uint8Array(await answer.arrayBuffer());
	const size = Number(answer.headers.get("X-Log-Size") ?? data.length);
	let start = Math.max(0, size - data.length);
	if (isLive) data = data.subarray(0, data.length - half(data));
	const end = start + data.length;
	if (start > 0) {
		const nl = data.indexOf(10);
		if (nl >= 0 && nl < data.length - 1) {
			data = data.subarray(nl + 1);
			start += nl + 1;
		}
	}
	const { text, skipped } = decodeRange(data, start === 0);
	start += skipped;
	return { window: append({ start, end: start, lines: [] }, text, end), size };
}

export function LogView({ id, isLive, onStatus, isCut }: { id: string; isLive: boolean; onStatus: () => void; isCut: Record<string, boolean> }) {
	const [stream, setStream] = useState<"stdout" | "stderr">("stdout");
	const [win, setWin] = useState<LogWindow>(EMPTY_LOG);
	const [size, setSize] = useState(0);
	const [state, setState] = useState<"loading" | "ready" | "error">("loading");
	const [problem, setProblem] = useState("");
	const [follows, setFollows] = useState(true);
	const [wraps, setWraps] = useState(true);
	const [find, setFind] = useState("");
	const [hit, setHit] = useState(-1);
	const [searching, setSearching] = useState<string | null>(null);
	const box = useRef<HTMLDivElement>(null);
	const current = useRef(win);
	current.current = win;
	const keep = useRef<{ height: number; top: number } | null>(null);
	const stopSearch = useRef(false);

	/* Loading, and following while the run goes on. */
	useEffect(() => {
		const abort = new AbortController();
		let isOver = false, timer = 0, failures = 0, frame = 0;
		let pending = current.current;
		const show = (w: LogWindow) => {
			pending = w;
			frame ||= requestAnimationFrame(() => {
				frame = 0;
				if (!isOver) {
					setWin(pending);
					setSize((s) => Math.max(s, pending.end));
				}
			});
		};
		const again = (e: unknown) => {
			if (isOver || (e as Error)?.name === "AbortError") return;
			const gone = e instanceof ApiError && e.status === 404;
			setState(gone ? "error" : "loading");
			setProblem(e instanceof ApiError ? e.message : "The connection was lost.");
			if (gone && !isLive) return;
			timer = window.setTimeout(work, Math.min(8000, 500 * 2 ** failures++));
		};
		const work = async () => {
			try {
				/* What was missed is read on only when it is little. */
				const tail = await readTail(id, stream, isLive);
				if (isOver) return;
				setSize(tail.size);
				const w = pending;
				show(w.lines.length > 0 && w.end <= tail.window.end && w.end >= tail.window.start && w.end > 0
					? w.end === tail.window.end ? w : append(w, (await readRange(id, stream, w.end, tail.window.end)).text, tail.window.end)
					: tail.window);
				setState("ready");
				setProblem("");
				failures = 0;
				if (!isLive || !follows) return;
				const answer = await request(`/api/v1/runs/${id}/follow?stream=${stream}&from=${pending.end}`, { signal: abort.signal });
				let ended = false;
				await readEvents(answer.body!, (event, data) => {
					if (isOver) return;
					const d = JSON.parse(data);
					if (event === "log" && typeof d.text === "string" && typeof d.offset === "number") show(append(pending, d.text, d.offset));
					else if (event === "status" || event === "end") onStatus();
					if (event === "end") ended = true;
				});
				if (!ended && !isOver) timer = window.setTimeout(work, 500);
			} catch (e) {
				again(e);
			}
		};
		work();
		return () => {
			isOver = true;
			abort.abort();
			clearTimeout(timer);
			cancelAnimationFrame(frame);
		};
	}, [id, stream, isLive, follows && isLive]);

	const choose = (s: "stdout" | "stderr") => {
		if (s === stream) return;
		stopSearch.current = true;
		current.current = EMPTY_LOG;
		setWin(EMPTY_LOG);
		setSize(0);
		setState("loading");
		setHit(-1);
		setFollows(true);
		setStream(s);
	};

	/* The end stays in view while it is followed; reading on upwards moves nothing. */
	useLayoutEffect(() => {
		const b = box.current;
		if (!b) return;
		if (keep.current) {
			b.scrollTop = keep.current.top + (b.scrollHeight - keep.current.height);
			keep.current = null;
		} else if (follows) {
			b.scrollTop = b.scrollHeight;
		}
	}, [win, follows, wraps]);

	const cache = useRef(new WeakMap<Line, { style: Style; parsed: Parsed }>()).current;
	const parsed = useMemo(() => {
		let style = PLAIN;
		return win.lines.map((line) => {
			let known = cache.get(line);
			if (!known || known.style !== style) {
				const cut = line.text.length > LINE_CUT;
				const p = parseAnsi(cut ? line.text.slice(0, LINE_CUT) : line.text, style);
				known = { style, parsed: { pieces: p.pieces, next: cut ? PLAIN : p.style, cut } };
				cache.set(line, known);
			}
			style = known.parsed.next;
			return known.parsed;
		});
	}, [win]);

	const needle = find.toLowerCase();
	const hits = useMemo(() => {
		if (!needle) return [];
		const found: number[] = [];
		parsed.forEach((p, i) => {
			if (p.pieces.map((x) => x.text).join("").toLowerCase().includes(needle)) found.push(i);
		});
		return found;
	}, [parsed, needle]);

	const go = (to: number) => {
		if (hits.length === 0) return;
		const n = (to + hits.length) % hits.length;
		setHit(n);
		setFollows(false);
		box.current?.querySelector(`[data-n="${hits[n]}"]`)?.scrollIntoView({ block: "center" });
	};

	const earlier = useCallback(async () => {
		const w = current.current, b = box.current;
		if (w.start <= 0) return;
		setFollows(false);
		try {
			const r = await readRange(id, stream, Math.max(0, w.start - LOG_CHUNK), w.start);
			if (current.current !== w) return;
			if (b) keep.current = { height: b.scrollHeight, top: b.scrollTop };
			setWin(prepend(w, r.text, r.start));
		} catch (e) {
			setProblem((e as Error).message);
		}
	}, [id, stream]);

	const later = async () => {
		const w = current.current;
		try {
			const r = await readRange(id, stream, w.end, Math.min(size, w.end + LOG_CHUNK));
			if (current.current === w) setWin(append(w, r.text, Math.min(size, w.end + LOG_CHUNK)));
		} catch (e) {
			setProblem((e as Error).message);
		}
	};

	/* Earlier parts are read one after the other; only the one with a match is kept. */
	const searchEarlier = async () => {
		let at = current.current.start, overlap = "";
		stopSearch.current = false;
		setFollows(false);
		try {
			while (at > 0 && !stopSearch.current) {
				const from = Math.max(0, at - LOG_CHUNK);
				setSearching(`${bytes(at)} left`);
				const r = await readRange(id, stream, from, at);
				if ((r.text + overlap).toLowerCase().includes(needle)) {
					if (stopSearch.current) return;
					setWin(append({ start: r.start, end: r.start, lines: [] }, r.text, at));
					setHit(0);
					requestAnimationFrame(() => requestAnimationFrame(() => box.current?.querySelector(".line.found")?.scrollIntoView({ block: "center" })));
					return;
				}
				overlap = r.text.slice(0, needle.length);
				at = from;
			}
			if (!stopSearch.current) setProblem("Nothing is found before this part.");
		} catch (e) {
			setProblem((e as Error).message);
		} finally {
			setSearching(null);
		}
	};

	const download = async () => {
		try {
			const a = document.createElement("a");
			a.href = await ticket(`/api/v1/runs/${id}/logs/${stream}`);
			a.download = `${id}.${stream}.txt`;
			a.click();
		} catch (e) {
			setProblem((e as Error).message);
		}
	};

	return (
		<section class="card log-card" aria-labelledby="h-log">
			<header class="card-head">
				<h2 id="h-log">Log</h2>
				<div class="tabs" role="group" aria-label="Stream">
					{(["stdout", "stderr"] as const).map((s) => (
						<button key={s} type="button" aria-pressed={s === stream} onClick={() => choose(s)}>{s}</button>
					))}
				</div>
				<div class="log-tools">
					<label class="field search">
						<span class="vh">Search in the log</span>
						<Icon name="search" size={13} />
						<input type="search" data-search placeholder="search" value={find} maxLength={200} spellcheck={false}
							onInput={(e) => (setFind(e.currentTarget.value), setHit(-1))}
							onKeyDown={(e) => {
								if (e.key === "Enter") {
									e.preventDefault();
									go(e.shiftKey ? hit - 1 : hit + 1);
								}
							}} />
					</label>
					{needle && <span class="num small hits" role="status">{hits.length === 0 ? "none" : `${hit < 0 ? "" : `${hit + 1} of `}${count(hits.length)}`}</span>}
					{needle && <button type="button" class="ghost" onClick={() => go(hit - 1)} disabled={!hits.length} aria-label="Match before">↑</button>}
					{needle && <button type="button" class="ghost" onClick={() => go(hit + 1)} disabled={!hits.length} aria-label="Next match">↓</button>}
					{needle && win.start > 0 && (searching
						? <button type="button" class="ghost" onClick={() => (stopSearch.current = true)}>Stop ({searching})</button>
						: <button type="button" class="ghost" onClick={searchEarlier}>Search earlier</button>)}
					<button type="button" class="ghost" aria-pressed={wraps} onClick={() => setWraps(!wraps)}>Wrap</button>
					{isLive && <button type="button" class="ghost" aria-pressed={follows} onClick={() => setFollows(!follows)}>{follows ? <span class="pulse" aria-hidden="true" /> : null}Follow</button>}
					<button type="button" class="ghost" onClick={download} aria-label={`Download ${stream}`} title={`Download ${stream}`}><Icon name="download" size={14} /></button>
				</div>
			</header>
			<div class={"log" + (wraps ? " wraps" : "")} ref={box} tabIndex={0} role="region" aria-label={`${stream} of the run`}
				onScroll={(e) => {
					const b = e.currentTarget;
					const isAtEnd = b.scrollHeight - b.scrollTop - b.clientHeight < 24;
					if (follows && !isAtEnd && isLive) setFollows(false);
				}}>
				{win.start > 0 && (
					<p class="log-edge">
						{bytes(win.start)} before this. <button type="button" class="link" onClick={earlier}>Show earlier lines</button>
					</p>
				)}
				{parsed.map((p, i) => (
					<LogLine key={win.lines[i].offset} n={i} line={win.lines[i]} parsed={p} needle={needle} isCurrent={hit >= 0 && hits[hit] === i} isFound={needle !== "" && hits.includes(i)} />
				))}
				{state === "ready" && win.lines.length === 0 && <p class="log-edge">{isLive ? "Nothing has been written yet." : "Nothing was written."}</p>}
				{state === "loading" && win.lines.length === 0 && <p class="log-edge">{problem ? problem + " Trying again." : "Reading …"}</p>}
				{state === "error" && <p class="log-edge">{problem}</p>}
				{win.end < size && !(isLive && follows) && (
					<p class="log-edge">
						{bytes(size - win.end)} after this. <button type="button" class="link" onClick={later}>Show later lines</button>
					</p>
				)}
			</div>
			<footer class="log-foot faint small" role="status">
				{isCut[stream] ? `The limit of this log was reached: it was cut at ${bytes(size)}. ` : `${bytes(size)}. `}
				{isLive && (follows ? "Following." : "Not following.")}
				{problem && state === "ready" ? " " + problem : ""}
			</footer>
		</section>
	);
}

function marked(text: string, needle: string) {
	if (!needle) return text;
	const out = [], low = text.toLowerCase();
	/* Lower case can be longer in some scripts: then positions do not fit, and nothing is marked. */
	if (low.length !== text.length) return text;
	let last = 0;
	for (let at = low.indexOf(needle); at >= 0 && out.length < 200; at = low.indexOf(needle, last)) {
		out.push(text.slice(last, at), <mark>{text.slice(at, at + needle.length)}</mark>);
		last = at + needle.length;
	}
	out.push(text.slice(last));
	return out;
}

const LogLine = memo(function LogLine({ n, line, parsed, needle, isCurrent, isFound }: { n: number; line: Line; parsed: Parsed; needle: string; isCurrent: boolean; isFound: boolean }) {
	const [more, setMore] = useState(0);
	const pieces = more ? parseAnsi(line.text.slice(0, more)).pieces : parsed.pieces;
	const shown = more || LINE_CUT;
	return (
		<div class={"line" + (isFound ? " found" : "") + (isCurrent ? " current" : "")} data-n={n}>
			{pieces.length === 0 ? "\u200b" : pieces.map((p, i) => <span key={i} class={p.className || undefined}>{marked(p.text, isFound ? needle : "")}</span>)}
			{line.text.length > shown && (
				<button type="button" class="link" onClick={() => setMore(shown + LINE_MORE)}>
					… show more ({count(line.text.length - shown)} characters)
				</button>
			)}
		</div>
	);
});
