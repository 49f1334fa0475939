// One line of a log: SGR colours become class names from a fixed list, every other escape sequence
// is dropped, every other control is shown. The work is linear in the length of the line.
// SPDX-License-Identifier: Apache-2.0
import { visible } from "./text";

export interface Style {
	fg: number; /* -1: none, 0..15 */
	bg: number;
	bold: boolean;
	dim: boolean;
	italic: boolean;
	underline: boolean;
}
export interface Piece {
	text: string;
	className: string;
}

export const PLAIN: Style = { fg: -1, bg: -1, bold: false, dim: false, italic: false, underline: false };
const MAX_PIECES = 500;

/* The nearest of 16, so that a theme decides what can be read: no log can hide text by its colours. */
export function nearest16(r: number, g: number, b: number): number {
	const most = Math.max(r, g, b), least = Math.min(r, g, b);
	if (most - least < 48)
		return most < 64 ? 0 : most < 150 ? 8 : most < 220 ? 7 : 15;
	const middle = (most + least) / 2;
	return (r > middle ? 1 : 0) | (g > middle ? 2 : 0) | (b > middle ? 4 : 0) | (most > 170 ? 8 : 0);
}

function colour256(n: number): number {
	if (n < 16)
		return n;
	if (n >= 232) {
		const grey = 8 + (n - 232) * 10;
		return nearest16(grey, grey, grey);
	}
	const level = (v: number) => (v === 0 ? 0 : 55 + v * 40);
	n -= 16;
	return nearest16(level(Math.floor(n / 36)), level(Math.floor(n / 6) % 6), level(n % 6));
}

function apply(style: Style, parameters: string): Style {
	const s = { ...style };
	const p = parameters === "" ? [0] : parameters.split(/[;:]/, 32).map((x) => (x === "" ? 0 : Number(x)));
	for (let i = 0; i < p.length; i++) {
		const c = p[i];
		if (c === 0) Object.assign(s, PLAIN);
		else if (c === 1) s.bold = true;
		else if (c === 2) s.dim = true;
		else if (c === 3) s.italic = true;
		else if (c === 4) s.underline = true;
		else if (c === 22) s.bold = s.dim = false;
		else if (c === 23) s.italic = false;
		else if (c === 24) s.underline = false;
		else if (c >= 30 && c <= 37) s.fg = c - 30;
		else if (c === 39) s.fg = -1;
		else if (c >= 40 && c <= 47) s.bg = c - 40;
		else if (c === 49) s.bg = -1;
		else if (c >= 90 && c <= 97) s.fg = c - 82;
		else if (c >= 100 && c <= 107) s.bg = c - 92;
		else if (c === 38 || c === 48) {
			let colour = -1;
			if (p[i + 1] === 5 && p[i + 2] <= 255) {
				colour = colour256(p[i + 2]);
				i += 2;
			} else if (p[i + 1] === 2 && i + 4 < p.length) {
				colour = nearest16(p[i + 2] & 255, p[i + 3] & 255, p[i + 4] & 255);
				i += 4;
			} else {
				break;
			}
			if (c === 38) s.fg = colour;
			else s.bg = colour;
		}
	}
	return s;
}

function classes(s: Style): string {
	let c = "";
	if (s.fg >= 0) c += " af" + s.fg;
	if (s.bg >= 0) c += " ab" + s.bg;
	if (s.bold) c += " abold";
	if (s.dim) c += " adim";
	if (s.italic) c += " aital";
	if (s.underline) c += " aline";
	return c.slice(1);
}

/* CSI; OSC, DCS and the like up to their end (at most 4,096 characters); two-character escapes. */
const ESCAPE =
	/\x1b\[([0-9;:<=>?]{0,64})[ -/]{0,4}([@-~])|\x1b[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|\x1b[ -/]{0,4}[0-Z\\^-~]/g;

/* A line as a terminal would leave it: what stands before a carriage return was overwritten. */
export function overwritten(line: string): string {
	const text = line.endsWith("\r") ? line.slice(0, -1) : line;
	const at = text.lastIndexOf("\r");
	return at < 0 ? text : text.slice(at + 1);
}

/* The pieces of a line, and the style that goes on in the next line. */
export function parseAnsi(line: string, style: Style = PLAIN): { pieces: Piece[]; style: Style } {
	const text = overwritten(line);
	if (!text.includes("\x1b"))
		return { pieces: text === "" ? [] : [{ text: showTabs(text), className: classes(style) }], style };
	const pieces: Piece[] = [];
	let last = 0;
	const add = (from: number, to: number) => {
		if (to > from)
			pieces.push({ text: showTabs(text.slice(from, to)), className: classes(style) });
	};
	ESCAPE.lastIndex = 0;
	for (let m = ESCAPE.exec(text); m; m = ESCAPE.exec(text)) {
		if (pieces.length >= MAX_PIECES)
			break;
		add(last, m.index);
		last = m.index + m[0].length;
		if (m[2] === "m" && !/[<=>?]/.test(m[1]))
			style = apply(style, m[1]);
	}
	add(last, text.length);
	return { pieces, style };
}

function showTabs(text: string): string {
	return text.includes("\t") ? text.split("\t").map(visible).join("\t") : visible(text);
}
