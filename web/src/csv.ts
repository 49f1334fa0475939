// The first rows of a CSV or TSV file (RFC 4180, and what people really write).
// SPDX-License-Identifier: Apache-2.0
import { cut, visible } from "./text";

export interface Table {
	rows: string[][];
	columns: number;  /* of the widest row, also those that are not shown */
	truncated: boolean; /* there are more rows, columns or characters than these */
}

export const CSV_ROWS = 200, CSV_COLUMNS = 40, CSV_CELL = 300;

function separator(text: string): string {
	const line = text.slice(0, 4096).split("\n", 1)[0];
	let best = ",", most = 0;
	for (const s of [",", "\t", ";", "|"]) {
		const n = line.split(s).length;
		if (n > most) {
			best = s;
			most = n;
		}
	}
	return best;
}

/* is_whole: the text is the whole file, so its last line is complete. */
export function parseCsv(text: string, isWhole = true): Table {
	const sep = separator(text);
	const rows: string[][] = [];
	let row: string[] = [], cell = "", columns = 0, quoted = false, truncated = !isWhole;
	const endCell = () => {
		columns = Math.max(columns, row.length + 1);
		if (row.length < CSV_COLUMNS)
			row.push(visible(cut(cell, CSV_CELL)));
		else if (row.length === CSV_COLUMNS)
			truncated = true;
		cell = "";
	};
	let count = 0, i = 0;
	for (; i < text.length && rows.length < CSV_ROWS; i++) {
		const c = text[i];
		if (quoted) {
			if (c !== '"') {
				if (cell.length <= CSV_CELL) cell += c;
			} else if (text[i + 1] === '"') {
				cell += c;
				i++;
			} else {
				quoted = false;
			}
		} else if (c === '"' && cell === "") {
			quoted = true;
		} else if (c === sep) {
			count++;
			endCell();
			if (count > 10000) { /* one line without an end */
				truncated = true;
				break;
			}
		} else if (c === "\n" || (c === "\r" && text[i + 1] === "\n")) {
			if (c === "\r") i++;
			endCell();
			rows.push(row);
			row = [];
			count = 0;
		} else if (cell.length <= CSV_CELL) {
			cell += c;
		} else {
			truncated = true;
		}
	}
	if (i < text.length)
		truncated = true;
	else if ((cell !== "" || row.length > 0) && rows.length < CSV_ROWS) {
		endCell();
		rows.push(row);
	}
	return { rows, columns, truncated };
}

/* Columns of numbers are set flush right. */
export function numericColumns(rows: string[][]): boolean[] {
	const body = rows.slice(1, 60), width = Math.max(0, ...rows.map((r) => r.length));
	return Array.from({ length: width }, (_, c) => {
		const cells = body.map((r) => r[c] ?? "").filter((v) => v !== "" && v !== "NA");
		return cells.length > 0 && cells.every((v) => /^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^[-+]?(inf|nan)$/i.test(v));
	});
}
