// Small parts that all pages use.
// SPDX-License-Identifier: Apache-2.0
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, Query, serverNow } from "./api";
import { bytes, duration, exact, relative, shortDigest } from "./format";
import { cut, visible } from "./text";

/* One path a symbol, on a grid of 16. */
const PATHS: Record<string, string> = {
	succeeded: "M3.5 8.5l3 3 6-7", ran: "M3.5 8.5l3 3 6-7", done: "M3.5 8.5l3 3 6-7", healthy: "M3.5 8.5l3 3 6-7", cached: "M2.500 8.500l3 3 5.500-7M9 11.500l.5 0 5-7",
	failed: "M4 4l8 8M12 4l-8 8", unhealthy: "M4 4l8 8M12 4l-8 8", killed: "M8.500 2L4 9h4l-.5 5L12 7H8z", cancelled: "M4 8h8", skipped: "M4 8h8", stopped: "M5 5h6v6H5z",
	corrupted: "M8 2.500l6 10.500H2zM8 6.500v3M8 11.200v.3", lost: "M6 6a2 2 0 1 1 2.500 2c-.5.2-.5.6-.5 1.500M8 12v.3", rejected: "M4.500 11.500l7-7M8 2.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 1 0 0-11",
	running: "M5.500 3.500l7 4.500-7 4.500z", preparing: "M8 3v5l3 2", collecting: "M8 3v7M5 7.500l3 3 3-3M3.500 13h9", queued: "M5 3.500v9M11 3.500v9", waiting: "M5 3.500v9M11 3.500v9", unchecked: "M8 4.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 1 0 0-7",
	overview: "M2.500 2.500h4.500v6H2.500zM9 2.500h4.500v3H9zM9 7.500h4.500v6H9zM2.500 10.500h4.500v3H2.500z", runs: "M2.500 4h11M2.500 8h11M2.500 12h7", runtimes: "M8 2l5.500 3v6L8 14l-5.500-3V5zM2.500 5L8 8l5.500-3M8 8v6",
	pipelines: "M2.500 6h3v4h-3zM10.500 2.500h3v4h-3zM10.500 9.500h3v4h-3zM5.500 8h2.500M10.500 4.500H8v7h2.500", health: "M1.500 8.500h3l2-5 3 9 2-4h3", search: "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 1 0 0-9M10.300 10.300l3.700 3.700",
	sun: "M8 5a3 3 0 1 0 0 6 3 3 0 1 0 0-6M8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M12.600 3.400l-.7.7M4.100 11.900l-.7.7", moon: "M13 9.500A5.500 5.500 0 1 1 6.500 3a4.500 4.500 0 0 0 6.500 6.500z", auto: "M8 2.500a5.500 5.500 0 1 0 0 11zM8 2.500a5.500 5.500 0 0 1 0 11",
	keys: "M1.500 4.500h13v7h-13zM4 7h.2M7 7h.2M10 7h.2M12 7h.2M5 9.500h6", copy: "M5.500 5.500h7v8h-7zM3.500 10.500v-8h7", download: "M8 2.500v8M4.500 7L8 10.500 11.500 7M3 13.500h10", close: "M4 4l8 8M12 4l-8 8", rerun: "M13 8a5 5 0 1 1-1.500-3.500M13 2v3h-3",
};
export function Icon({ name, size = 16 }: { name: string; size?: number }) {
	return (
		<svg class="icon" viewBox="0 0 16 16" width={size} height={size} aria-hidden="true">
			<path d={PATHS[name] ?? PATHS.lost} />
		</svg>
	);
}

const BAD = new Set(["failed", "killed", "corrupted", "lost", "rejected"]);
export const isBad = (s: string): boolean => BAD.has(s);
export const isOpen = (s: string): boolean => ["queued", "preparing", "running", "collecting"].includes(s);
const KNOWN = new Set(["succeeded", "failed", "killed", "cancelled", "corrupted", "lost", "rejected", "running", "preparing", "collecting", "queued",
	"ran", "done", "cached", "waiting", "skipped", "stopped", "healthy", "unhealthy", "unchecked"]);
export const toneOf = (status: string): string => "t-" + (KNOWN.has(status) ? status : "lost");

/* Words that the server never sends but a broken one could: shown as text, never as a class. */
export function Status({ status, reason, compact, label }: { status: string; reason?: string | null; compact?: boolean; label?: string }) {
	const extra = reason && reason !== "exit" && reason !== status ? reason.replace(/_/g, " ") : null;
	return (
		<span class={"status " + toneOf(status) + (compact ? " compact" : "")}>
			<Icon name={KNOWN.has(status) ? status : "lost"} size={compact ? 12 : 14} />
			<span>
				{label ?? visible(status)}
				{extra && <span class="reason"> {visible(extra)}</span>}
			</span>
		</span>
	);
}

/* One clock for all relative times. */
const clocks = new Set<() => void>();
let clock = 0;
export function useNow(): number {
	const [now, set] = useState(serverNow());
	useEffect(() => {
		const tick = () => set(serverNow());
		clocks.add(tick);
		clock ||= window.setInterval(() => document.hidden || clocks.forEach((c) => c()), 1000);
		return () => {
			clocks.delete(tick);
			if (clocks.size === 0) {
				clearInterval(clock);
				clock = 0;
			}
		};
	}, []);
	return now;
}

export function Time({ at }: { at: string | null | undefined }) {
	const now = useNow(), when = at ? Date.parse(at) : NaN;
	if (!isFinite(when)) return <span class="faint">–</span>;
	return (
		<time dateTime={at!} title={exact(when)}>
			{relative(when, now)}
		</time>
	);
}

/* A sentence of forge; the options in it are set as code and are not broken. */
export function Sentence({ text }: { text: string }) {
	return <>{visible(text).split(/(--[a-z][a-z-]{1,20}(?: [0-9][0-9A-Za-z]{0,12})?)/).map((part, i) => (i % 2 ? <code key={i} class="nowrap">{part}</code> : part))}</>;
}

export function Elapsed({ since }: { since: string | null }) {
	const now = useNow();
	return <span class="num">{since ? duration(Math.max(0, Math.floor((now - Date.parse(since)) / 1000))) : "–"}</span>;
}

/* A name that a payload chose: its direction cannot reach what stands around it. */
export function Name({ text, most = 200, mono }: { text: string | null | undefined; most?: number; mono?: boolean }) {
	const shown = visible(text ?? "");
	return (
		<bdi class={mono ? "mono" : undefined} title={shown.length > most ? cut(shown, 2000) : undefined}>
			{cut(shown, most)}
		</bdi>
	);
}

export function Meter({ label, used, limit, text, isPeak }: { label: string; used: number | null; limit: number | null; text: string; isPeak?: boolean }) {
	const share = used !== null && limit ? Math.max(0, used / limit) : null;
	const tone = share === null ? "" : share >= 0.95 ? " full" : share >= 0.8 ? " high" : "";
	return (
		<div class={"meter" + tone}>
			<span class="meter-label">{label}</span>
			<span class="meter-text num">{text}</span>
			<span class="bar" role="meter" aria-label={`${label}${isPeak ? ", highest" : ""}`} aria-valuemin={0} aria-valuemax={100}
				aria-valuenow={share === null ? 0 : Math.min(100, Math.round(share * 100))} aria-valuetext={share === null ? text : `${text}, ${Math.round(share * 100)} %`}>
				<span class="fill" style={{ width: share === null ? "0" : Math.min(100, share * 100).toFixed(1) + "%" }} />
			</span>
		</div>
	);
}

export function Card({ title, extra, children, id, class: more }: { title: string; extra?: ComponentChildren; children: ComponentChildren; id?: string; class?: string }) {
	const head = "h-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
	return (
		<section class={"card " + (more ?? "")} aria-labelledby={head} id={id}>
			<header class="card-head">
				<h2 id={head}>{title}</h2>
				{extra && <div class="card-extra">{extra}</div>}
			</header>
			{children}
		</section>
	);
}

export function Empty({ children }: { children: ComponentChildren }) {
	return <p class="empty">{children}</p>;
}

/* What a page shows until there are data; an error that will not go by itself is said here. */
export function Pending({ query, what }: { query: Query<unknown>; what: string }) {
	const e = query.error;
	if (e && e.status !== 401 && e.status !== 0 && e.status !== 503) return <Failure error={e} />;
	return (
		<div class="pending" role="status">
			<span class="skeleton" />
			<span class="skeleton short" />
			<span class="vh">{`Reading ${what} …`}</span>
		</div>
	);
}

export function Failure({ error }: { error: ApiError }) {
	return (
		<div class="failure" role="alert">
			<strong>{visible(error.message)}</strong>
			{error.hint && <span> {visible(error.hint)}</span>}
		</div>
	);
}

export function Copy({ text, label }: { text: string; label: string }) {
	const [done, setDone] = useState(false);
	const copy = async () => {
		try {
			await navigator.clipboard.writeText(text);
			setDone(true);
			setTimeout(() => setDone(false), 1500);
		} catch {
			/* not allowed here: the text itself can be selected */
		}
	};
	return (
		<button type="button" class="ghost tiny" onClick={copy} aria-label={label} title={label}>
			<Icon name={done ? "succeeded" : "copy"} size={13} />
			<span class="vh" role="status">{done ? "Copied" : ""}</span>
		</button>
	);
}

export function Digest({ value }: { value: string | null | undefined }) {
	if (!value) return <span class="faint">–</span>;
	return (
		<span class="digest">
			<code title={visible(value)}>{visible(shortDigest(value))}</code>
			<Copy text={value} label="Copy the digest" />
		</span>
	);
}

export function Dialog({ title, children, onClose }: { title: string; children: ComponentChildren; onClose: () => void }) {
	const ref = useRef<HTMLDialogElement>(null);
	useEffect(() => {
		const before = document.activeElement as HTMLElement | null;
		ref.current?.showModal();
		return () => before?.focus?.();
	}, []);
	return (
		<dialog ref={ref} aria-labelledby="dialog-title" onCancel={(e) => (e.preventDefault(), onClose())}
			onClick={(e) => e.target === ref.current && onClose()}>
			<div class="dialog-body">
				<header class="dialog-head">
					<h2 id="dialog-title">{title}</h2>
					<button type="button" class="ghost" onClick={onClose} aria-label="Close"><Icon name="close" /></button>
				</header>
				{children}
			</div>
		</dialog>
	);
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
	return (
		<dl class="facts">
			{rows.map(([k, v]) => (
				<div key={k}>
					<dt>{k}</dt>
					<dd>{v}</dd>
				</div>
			))}
		</dl>
	);
}

/* 40 intervals of a health check, the oldest first. */
export function HealthStrip({ row }: { row: { name: string; parts: [number, number][]; checks: number; failed: number } }) {
	const n = row.parts.length || 1;
	return (
		<svg class="strip" viewBox={`0 0 ${n * 6} 20`} preserveAspectRatio="none" role="img"
			aria-label={`${visible(row.name)}: ${row.checks} checks in the time shown, ${row.failed} failed`}>
			{row.parts.map(([checks, failed], i) => (
				<rect key={i} x={i * 6 + 0.75} y={checks ? 0 : 8} width={4.5} height={checks ? 20 : 4} rx={1.5}
					class={!checks ? "none" : failed === 0 ? "ok" : failed < checks ? "some" : "bad"} />
			))}
		</svg>
	);
}

export const memoryText = (used: number | null, limit: number | null): string =>
	limit ? `${bytes(used)} of ${bytes(limit)}` : bytes(used);

export type Click = JSX.MouseEventHandler<HTMLElement>;
