// Numbers and times for people.
// SPDX-License-Identifier: Apache-2.0

export function bytes(n: number | null | undefined): string {
	if (n === null || n === undefined || !isFinite(n))
		return "–";
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
	let u = 0;
	while (Math.abs(n) >= 1024 && u < units.length - 1) {
		n /= 1024;
		u++;
	}
	return (u === 0 ? String(Math.round(n)) : n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2)) + " " + units[u];
}

export function duration(s: number | null | undefined): string {
	if (s === null || s === undefined || !isFinite(s) || s < 0)
		return "–";
	if (s < 0.001) return s === 0 ? "0 s" : "< 1 ms";
	if (s < 1) return Math.round(s * 1000) + " ms";
	if (s < 10) return s.toFixed(1) + " s";
	if (s < 60) return Math.floor(s) + " s";
	const m = Math.floor(s / 60);
	if (m < 60) return m + " min" + (s % 60 >= 1 && m < 10 ? " " + Math.floor(s % 60) + " s" : "");
	const h = Math.floor(m / 60);
	if (h < 48) return h + " h" + (m % 60 ? " " + (m % 60) + " min" : "");
	return Math.floor(h / 24) + " d" + (h % 24 ? " " + (h % 24) + " h" : "");
}

export function relative(when: number, now: number): string {
	const s = (now - when) / 1000;
	if (!isFinite(s)) return "–";
	if (s < -5) return "in " + duration(-s);
	if (s < 5) return "just now";
	if (s < 60) return Math.floor(s / 5) * 5 + " s ago";
	if (s < 3600) return Math.floor(s / 60) + " min ago";
	if (s < 48 * 3600) return Math.floor(s / 3600) + " h ago";
	if (s < 60 * 86400) return Math.floor(s / 86400) + " d ago";
	return new Date(when).toISOString().slice(0, 10);
}

export function exact(when: number): string {
	if (!isFinite(when)) return "";
	const d = new Date(when), p = (n: number) => String(n).padStart(2, "0"), zone = -d.getTimezoneOffset();
	return `${d.getFullYear()}-${p(d.getMonth() + 1)}-${p(d.getDate())} ${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}` +
		` (UTC${zone < 0 ? "-" : "+"}${p(Math.floor(Math.abs(zone) / 60))}:${p(Math.abs(zone) % 60)})`;
}

export function count(n: number | null | undefined): string {
	return n === null || n === undefined ? "–" : n.toLocaleString("en-US").replace(/,/g, "\u202f");
}

export function cpus(n: number | null | undefined): string {
	return n === null || n === undefined || !isFinite(n) ? "–" : n < 10 ? String(Math.round(n * 100) / 100) : n.toFixed(0);
}

export function shortDigest(d: string | null | undefined): string {
	return d ? d.replace(/^sha256:/, "").slice(0, 12) : "–";
}

/* Round values for an axis: at most `most` steps from 0, the last one at or above `top`. */
export function ticks(top: number, most: number, base = 10): number[] {
	if (!(top > 0)) return [0];
	const steps = base === 2 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512] : [1, 2, 5];
	const unit = base === 2 ? 1024 : 10;
	let scale = Math.pow(unit, Math.floor(Math.log(top / most) / Math.log(unit)));
	for (;; scale *= unit)
		for (const s of steps) {
			const n = Math.ceil(top / (s * scale) - 1e-9);
			if (n <= most)
				return Array.from({ length: n + 1 }, (_, i) => i * s * scale);
		}
}

/* Steps of time that people count in. */
export function timeTicks(top: number, most: number): number[] {
	for (const s of [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000])
		if (top / s <= most)
			return Array.from({ length: Math.floor(top / s + 1e-9) + 1 }, (_, i) => i * s);
	return [0, top];
}

/* What to offer after "Retry with --memory 4G.": the command line knows best. */
export function suggestedLimits(notes: string | null): Record<string, string> {
	const found: Record<string, string> = {};
	for (const m of (notes ?? "").matchAll(/--(memory|cpus|pids|timeout|cpu-time|disk|output-limit) ([0-9][0-9A-Za-z.]{0,15}?)(?=[\s,;)]|\.?(?:\s|$))/g))
		found[m[1].replace("-", "_")] = m[2];
	return found;
}

/* 2147483648 -> 2G, as the command line takes it. */
export function sizeText(n: number): string {
	for (const [unit, size] of [["T", 2 ** 40], ["G", 2 ** 30], ["M", 2 ** 20], ["K", 1024]] as [string, number][])
		if (n >= size && n % size === 0)
			return n / size + unit;
	return String(n);
}

export function durationText(s: number): string {
	for (const [unit, size] of [["h", 3600], ["m", 60]] as [string, number][])
		if (s >= size && s % size === 0)
			return s / size + unit;
	return s + "s";
}
