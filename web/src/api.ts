// The HTTP API: types, the token, requests, and what is known about the connection.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useReducer, useRef, useState } from "preact/hooks";

export interface RunRow {
	run_id: string; analysis_id: string; status: string; reason: string | null; completion_notes: string | null;
	runtime: string | null; executor: string; host: string; user: string; created_at: string; started_at: string | null;
	ended_at: string | null; wall_seconds: number | null; memory_peak_bytes: number | null; parent_run: string | null;
	attempt: number | null; command: string | null; memory_limit_bytes: number | null;
}
export interface Usage { memory_bytes: number | null; cpu_seconds: number | null; pids: number | null; disk_bytes: number | null }
export interface Limits {
	memory_bytes: number | null; cpus: number | null; pids: number | null; wall_seconds: number | null;
	cpu_seconds?: number | null; disk_bytes: number | null; output_bytes?: number | null;
}
export interface Live extends RunRow { live: Usage | null; limits: Limits | null; why: string | null }
export interface HealthRow {
	name: string; kind: string; checks: number; failed: number; mean_seconds: number | null; slowest_seconds: number | null;
	last_failed: string | null; problem: string | null; run_id: string | null; parts: [number, number][];
}
export interface Budget { memory_bytes: number; memory_used_bytes: number; cpus: number; cpus_used: number }
export interface Overview {
	forge_version: string; host: string; now: string; access: "read" | "operator"; store: { url: string; ok: boolean };
	budget: Budget | null; running: Live[]; queued: Live[]; failures: RunRow[]; counts: Record<string, number>; health: HealthRow[];
}
export interface HealthCheck { name: string; kind: string; ok: boolean; severity: string; text: string }
export interface Record_ {
	run_id: string; analysis_id: string; status: string; reason: string | null; completion_notes: string | null;
	exit_code: number | null; signal: number | string | null; command: string[]; executor: string; host: string; user: string;
	created_at: string; started_at: string | null; ended_at: string | null; profile: string | null;
	runtime: { name: string; kind: string; prefix: string | null; digest: string; why: string | null; versions: Record<string, string> | null } | null;
	limits: Limits | null; usage: Record<string, number | boolean | null> | null; network: string | null;
	inputs: { path: string; size: number | null; sha256: string | null }[] | null; workdir: string | null; parent_run: string | null; rerun_of?: string | null;
	attempt: number | null; priority: number | null; forge_version: string | null;
	asked: { cwd?: string; env?: unknown[]; outputs?: unknown } | null;
	step?: { pipeline: string; task: string } | null;
	isolation: { level: string; missing: string[]; mechanisms: Record<string, string> } | null;
	health: Record<string, { ok: boolean; checks: HealthCheck[] } | null> | null;
}
export interface RunPage { record: Record_; live: Usage | null; why: string | null; next_attempt: string | null }
export interface RunEvent { seq: number; time: string; actor: string; event: string; status: string | null; detail: string | null }
export interface Output { index: number; path: string; size: number; sha256: string; type: string; damaged: boolean }
export interface Runtime {
	name: string; kind: string; description: string | null; prefix: string | null; has: string | null; health: string; problem: string | null;
	clamped: unknown; checked_at: string | null; digest: string | null; declared_in: string | null; line: number | null;
	versions: Record<string, string> | null; packages?: { source: string; name: string; version: string }[];
}
export interface Drift {
	digest: string; first: string; last: string; runs: number;
	checks: { time: string; verdict: string; problem: string | null; probe_run: string | null; versions: Record<string, string> | null }[];
}
export interface Executor { name: string; kind: string; reachable: boolean; what: string; cannot: string; hint: string }
export interface PipelineRow {
	id: string; name: string; file: string; state: string; started_at: string | null; ended_at: string | null; counts: Record<string, number> | null;
}
export interface Task {
	task: string; step: string; needs: (string | { step: string; tasks: number })[]; state: string; run_id: string | null; why: string | null; started_at: string | null;
	ended_at: string | null; wall_seconds: number | null; memory_peak_bytes: number | null; memory_limit_bytes: number | null; attempt: number | null;
}
export interface Pipeline { id: string; name: string; file: string; state: string; tasks: Task[] }

export class ApiError extends Error {
	constructor(public status: number, public code: string, message: string, public hint: string | null = null) {
		super(message);
	}
}

/* ---- the token ---- */

const KEY = "forge-token";
let token: string | null = null;
const listeners = new Set<() => void>();

export type Connection = "ok" | "store_away" | "gone" | "busy" | "no_token" | "bad_token";
export const state = { connection: "ok" as Connection, message: "", access: null as "read" | "operator" | null, skew: 0, host: "", version: "" };

function changed(): void {
	for (const l of listeners) l();
}
export function useApiState(): typeof state {
	const [, force] = useReducer((n: number) => n + 1, 0);
	useEffect(() => {
		const l = () => force(0);
		listeners.add(l);
		return () => void listeners.delete(l);
	}, []);
	return state;
}
function setConnection(c: Connection, message = ""): void {
	if (state.connection === c && state.message === message) return;
	state.connection = c;
	state.message = message;
	changed();
}
export function noteOverview(o: Overview): void {
	const skew = Date.parse(o.now) - Date.now();
	if (isFinite(skew) && Math.abs(skew - state.skew) > 1500) state.skew = skew;
	if (state.access === o.access && state.host === o.host && state.version === o.forge_version) return;
	state.access = o.access;
	state.host = o.host;
	state.version = o.forge_version;
	changed();
}
export const serverNow = (): number => Date.now() + state.skew;

export function setToken(t: string | null): void {
	token = t;
	if (t) sessionStorage.setItem(KEY, t);
	else sessionStorage.removeItem(KEY);
	state.access = null;
	setConnection(t ? "ok" : "no_token");
	changed();
}

/* The token comes in the fragment of the link that forge serve printed; it does not stay in the address bar. */
export function takeTokenFromAddress(): boolean {
	const m = /^#token=([^&]+)/.exec(location.hash);
	if (!m) return false;
	let given = m[1];
	try {
		given = decodeURIComponent(given);
	} catch {
		/* taken as it stands */
	}
	history.replaceState(null, "", location.pathname + location.search + "#/");
	setToken(given);
	return true;
}

/* A link that was opened in a new tab asks the other tabs of this origin for the token. */
const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("forge-token");
export function startToken(): void {
	if (channel)
		channel.onmessage = (e) => {
			if (e.data === "ask" && token && state.connection !== "bad_token") channel.postMessage({ token });
			else if (!token && typeof e.data?.token === "string") setToken(e.data.token);
		};
	if (takeTokenFromAddress()) return;
	token = sessionStorage.getItem(KEY);
	if (!token) {
		state.connection = "no_token";
		channel?.postMessage("ask");
	}
}

/* ---- requests ---- */

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
	if (!token) {
		setConnection("no_token");
		throw new ApiError(401, "no_token", "This page needs a token.");
	}
	const used = token;
	let answer: Response;
	try {
		answer = await fetch(path, { cache: "no-store", credentials: "omit", redirect: "error", ...init,
			headers: { ...(init.headers as Record<string, string>), Authorization: "Bearer " + token } });
	} catch (e) {
		if ((e as Error).name === "AbortError") throw e;
		setConnection("gone", "The server does not answer.");
		throw new ApiError(0, "gone", "The server does not answer.");
	}
	if (answer.ok) {
		setConnection("ok");
		return answer;
	}
	let error: { code?: string; message?: string; hint?: string | null } = {};
	try {
		error = (await answer.json()).error ?? {};
	} catch {
		/* no JSON: the status says enough */
	}
	const failure = new ApiError(answer.status, error.code ?? "http_" + answer.status,
		error.message ?? `The server answered with status ${answer.status}.`, error.hint ?? null);
	if (answer.status === 401) {
		if (used === token) setConnection("bad_token", failure.message);
	} else if (answer.status === 503) {
		setConnection(failure.code === "store_away" ? "store_away" : "busy", failure.message);
	} else {
		setConnection("ok");
	}
	throw failure;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
	return (await request(path, { signal })).json();
}
export async function post<T>(path: string, body: unknown): Promise<T> {
	const answer = await request(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
	return answer.json();
}

/* The address of bytes for a frame or a download, good for five minutes. */
export async function ticket(path: string): Promise<string> {
	const { url } = await post<{ url: string }>("/api/v1/tickets", { path });
	if (!/^\/api\/v1\/[^\\]*$/.test(url)) throw new ApiError(0, "bad_ticket", "The server answered with an address that is not its own.");
	return url;
}

export const isTransient = (e: unknown): boolean =>
	e instanceof ApiError && (e.status === 0 || e.status === 429 || e.status >= 500);

export interface Query<T> { data: T | null; error: ApiError | null; isLoading: boolean; reload: () => void }

/* Asks again every `every` ms (0: once). After a failure the last data stay, and it tries again by itself. */
export function useQuery<T>(path: string | null, every = 0): Query<T> {
	const [result, setResult] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({ path: null, data: null, error: null });
	const [kick, reload] = useReducer((n: number) => n + 1, 0);
	const interval = useRef(every);
	interval.current = every;
	const { connection } = useApiState();
	const hasToken = connection !== "no_token" && connection !== "bad_token";
	useEffect(() => {
		if (!path || !hasToken) return;
		const abort = new AbortController();
		let timer = 0, failures = 0, isOver = false;
		const later = (ms: number) => {
			if (!isOver) timer = window.setTimeout(ask, ms);
		};
		const ask = async () => {
			if (document.hidden && interval.current > 0) return later(1000);
			try {
				const data = await get<T>(path, abort.signal);
				if (isOver) return;
				failures = 0;
				setResult({ path, data, error: null });
				if (interval.current > 0) later(interval.current);
			} catch (e) {
				if (isOver || (e as Error).name === "AbortError") return;
				const error = e instanceof ApiError ? e : new ApiError(0, "bad_answer", "The server gave an answer that is not JSON.");
				failures++;
				setResult((r) => ({ path, data: r.path === path ? r.data : null, error }));
				if (isTransient(error)) later(Math.min(10000, 1000 * 2 ** Math.min(failures, 4)));
			}
		};
		ask();
		return () => {
			isOver = true;
			abort.abort();
			clearTimeout(timer);
		};
	}, [path, kick, hasToken, every > 0]);
	const mine = result.path === path;
	return { data: mine ? result.data : null, error: mine ? result.error : null, isLoading: !mine || (!result.data && !result.error), reload: () => reload(0) };
}
