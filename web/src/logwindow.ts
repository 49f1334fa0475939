// The part of a log that the page holds: a window of bytes [start, end) as lines, never more than
// fixed numbers of lines and characters, whatever the log does.
// SPDX-License-Identifier: Apache-2.0

export const LOG_CHUNK = 256 * 1024;
export const LOG_LINES = 3000, LOG_CHARS = 1024 * 1024;

export interface Line {
	offset: number; /* of its first byte: a key that stays */
	text: string;
	open: boolean;  /* no line end yet */
}
export interface LogWindow {
	start: number;
	end: number;
	lines: Line[];
}

export const EMPTY_LOG: LogWindow = { start: 0, end: 0, lines: [] };

export function byteLength(text: string): number {
	let n = text.length;
	for (let i = 0; i < text.length; i++) {
		const c = text.charCodeAt(i);
		if (c > 0x7f) n += c > 0x7ff && (c < 0xd800 || c > 0xdfff) ? 2 : 1;
	}
	return n;
}

/* Adds text that begins at window.end; `end` is the offset behind it. The oldest lines go. */
export function append(w: LogWindow, text: string, end: number): LogWindow {
	if (text === "") return { ...w, end };
	const lines = w.lines.slice();
	/* Bytes that were no UTF-8 are one character of three bytes now: the offsets are scaled, so that none lies behind the end. */
	const length = byteLength(text), scale = length > 0 ? Math.max(0, end - w.end) / length : 0;
	let offset = w.end;
	const parts = text.split("\n");
	parts.forEach((part, i) => {
		const isLast = i === parts.length - 1;
		const last = lines[lines.length - 1];
		if (i === 0 && last?.open)
			lines[lines.length - 1] = { offset: last.offset, text: last.text + part, open: isLast };
		else if (!isLast || part !== "")
			lines.push({ offset, text: part, open: isLast });
		offset += (byteLength(part) + 1) * scale;
	});
	return trimmed({ start: w.start, end, lines }, false);
}

/* Adds text that ends at window.start and begins at `start`. The newest lines go. */
export function prepend(w: LogWindow, text: string, start: number): LogWindow {
	const head = append({ start, end: start, lines: [] }, text, w.start);
	const lines = head.lines.slice();
	const last = lines[lines.length - 1];
	const rest = w.lines.slice();
	if (last?.open && rest.length) {
		lines[lines.length - 1] = { offset: last.offset, text: last.text + rest[0].text, open: rest[0].open };
		rest.shift();
	}
	return trimmed({ start: head.start, end: w.end, lines: lines.concat(rest) }, true);
}

function trimmed(w: LogWindow, keepsHead: boolean): LogWindow {
	let { start, end, lines } = w;
	let chars = lines.reduce((n, l) => n + l.text.length + 1, 0);
	if (lines.length <= LOG_LINES && chars <= LOG_CHARS)
		return w;
	lines = lines.slice();
	while (lines.length > 1 && (lines.length > LOG_LINES || chars > LOG_CHARS)) {
		const gone = keepsHead ? lines.pop()! : lines.shift()!;
		chars -= gone.text.length + 1;
		if (keepsHead) end = Math.floor(gone.offset);
		else start = Math.floor(lines[0].offset);
	}
	if (chars > LOG_CHARS) { /* one line that is longer than all we keep */
		const line = lines[0];
		if (keepsHead) {
			const kept = line.text.slice(0, LOG_CHARS);
			end = Math.min(end, Math.floor(line.offset) + byteLength(kept));
			lines = [{ ...line, text: kept, open: true }];
		} else {
			const kept = line.text.slice(line.text.length - LOG_CHARS);
			start = Math.max(Math.floor(line.offset), end - byteLength(kept) - (line.open ? 0 : 1));
			lines = [{ ...line, offset: start, text: kept }];
		}
	}
	return { start, end, lines };
}

/* Bytes of a range that may begin and end within a character. */
export function decodeRange(data: Uint8Array, isStart: boolean): { text: string; skipped: number } {
	let skipped = 0;
	if (!isStart)
		while (skipped < 3 && skipped < data.length && (data[skipped] & 0xc0) === 0x80)
			skipped++;
	return { text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(data.subarray(skipped)), skipped };
}
