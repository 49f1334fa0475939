// A notebook as text and pictures. HTML, JavaScript and widgets in it are never interpreted.
// SPDX-License-Identifier: Apache-2.0
import { cut, visibleLines } from "./text";

export type Part =
	| { kind: "markdown" | "code" | "text" | "error"; text: string; count?: number | null }
	| { kind: "image"; type: string; base64: string; alt: string }
	| { kind: "note"; text: string };

const MAX_CELLS = 300, MAX_TEXT = 20000, MAX_IMAGE = 8 << 20;

function joined(v: unknown): string {
	const text = Array.isArray(v) ? v.filter((x) => typeof x === "string").join("") : typeof v === "string" ? v : "";
	return visibleLines(cut(text.replace(/\x1b\[[0-9;]{0,32}m/g, ""), MAX_TEXT));
}

function outputs(list: unknown, parts: Part[]): void {
	if (!Array.isArray(list)) return;
	for (const o of list.slice(0, 50)) {
		if (!o || typeof o !== "object") continue;
		if (o.output_type === "stream") {
			parts.push({ kind: "text", text: joined(o.text) });
		} else if (o.output_type === "error") {
			parts.push({ kind: "error", text: joined(o.traceback) || `${joined(o.ename)}: ${joined(o.evalue)}` });
		} else if (o.data && typeof o.data === "object") {
			const image = ["image/png", "image/jpeg"].find((t) => o.data[t] !== undefined);
			const base64 = image ? (Array.isArray(o.data[image]) ? o.data[image].join("") : String(o.data[image])).replace(/\s+/g, "") : "";
			if (image && base64.length <= MAX_IMAGE && /^[A-Za-z0-9+/]+={0,2}$/.test(base64))
				parts.push({ kind: "image", type: image, base64, alt: joined(o.data["text/plain"]) });
			else if (o.data["text/plain"] !== undefined)
				parts.push({ kind: "text", text: joined(o.data["text/plain"]) });
			const other = Object.keys(o.data).filter((t) => t !== "text/plain" && t !== image).slice(0, 5);
			if (other.length)
				parts.push({ kind: "note", text: `Not shown: ${visibleLines(cut(other.join(", "), 200))}` });
		}
	}
}

/* Throws when the text is not a notebook. */
export function parseNotebook(text: string): Part[] {
	const book = JSON.parse(text);
	if (!book || typeof book !== "object" || !Array.isArray(book.cells))
		throw new Error("This file is not a notebook of format 4.");
	const parts: Part[] = [];
	for (const cell of book.cells.slice(0, MAX_CELLS)) {
		if (!cell || typeof cell !== "object") continue;
		const source = joined(cell.source);
		if (cell.cell_type === "code") {
			const n = Number.isInteger(cell.execution_count) ? cell.execution_count : null;
			if (source) parts.push({ kind: "code", text: source, count: n });
			outputs(cell.outputs, parts);
		} else if (source) {
			parts.push({ kind: cell.cell_type === "markdown" ? "markdown" : "text", text: source });
		}
	}
	if (book.cells.length > MAX_CELLS)
		parts.push({ kind: "note", text: `${book.cells.length - MAX_CELLS} more cells are not shown.` });
	return parts;
}
