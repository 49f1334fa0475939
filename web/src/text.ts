// Text that a payload wrote, made safe to look at. It is only ever put into text nodes.
// SPDX-License-Identifier: Apache-2.0

/* C0 and C1 controls, DEL, and what reorders or hides text around it. */
const HIDDEN =
	/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{d800}-\u{dfff}\u{e0000}-\u{e007f}]/gu;

function name(char: string): string {
	const code = char.codePointAt(0)!;
	/* As less(1) and vi(1) show them. */
	if (code < 0x20 || code === 0x7f)
		return "^" + String.fromCharCode(code ^ 0x40);
	return "⟨U+" + code.toString(16).toUpperCase().padStart(4, "0") + "⟩";
}

/* Names and sentences: every control and every character that changes the direction is shown. */
export function visible(text: string): string {
	return text.replace(HIDDEN, name);
}

/* Text of several lines: line ends and tabs keep their meaning. */
export function visibleLines(text: string): string {
	return text.replace(/\r\n/g, "\n").replace(HIDDEN, (c) => (c === "\n" || c === "\t" ? c : name(c)));
}

export function cut(text: string, most: number): string {
	if (text.length <= most)
		return text;
	/* Not between the two halves of a character. */
	const code = text.charCodeAt(most - 1);
	return text.slice(0, code >= 0xd800 && code < 0xdc00 ? most - 1 : most) + "…";
}

/* What a shell would take as the same words. */
export function shellQuote(words: string[]): string {
	return words
		.map((w) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(w) ? w : "'" + w.replace(/'/g, "'\\''") + "'"))
		.join(" ");
}
