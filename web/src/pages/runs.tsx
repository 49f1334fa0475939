// Runs: filters in the address, pages by cursor, never all of them.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from "preact/hooks";
import { RunRow, useQuery } from "../api";
import { bytes, duration } from "../format";
import { href, Route, setQuery } from "../router";
import { visible } from "../text";
import { Empty, Failure, Icon, Name, Pending, Sentence, Status, Time } from "../ui";

const STATUSES = ["queued", "preparing", "running", "collecting", "succeeded", "failed", "killed", "cancelled", "corrupted", "lost", "rejected"];
const REASONS = ["exit", "signal", "wall_time", "cpu_time", "memory", "pids", "disk", "output", "cancelled", "exec", "sandbox", "runtime", "input", "missing_output", "health_pre", "health_post", "host_lost", "admission"];
const SORTS: [string, string][] = [["created", "newest"], ["ended", "ended last"], ["wall", "longest"], ["memory", "most memory"]];
const FILTERS = ["analysis", "status", "reason", "runtime", "user", "since", "parts"];

/* A word is searched anywhere in the name; a pattern is taken as it is. */
function pattern(text: string): string {
	return /[*?]/.test(text) ? text : "*" + text + "*";
}

function apiPath(q: URLSearchParams): string {
	const p = new URLSearchParams();
	for (const key of ["status", "reason", "runtime", "user", "since", "until", "pipeline"])
		if (q.get(key)) p.set(key, q.get(key)!);
	if (q.get("analysis")) p.set("analysis", pattern(q.get("analysis")!));
	if (q.get("parts")) p.set("parts", "1");
	const sort = q.get("sort") ?? "created";
	if (SORTS.some(([s]) => s === sort) && sort !== "created") p.set("sort", sort);
	if (q.get("reverse")) p.set("reverse", "1");
	if (q.get("after") && sort === "created") p.set("after", q.get("after")!);
	p.set("limit", "50");
	return "/api/v1/runs?" + p;
}

export function RunsPage({ route }: { route: Route }) {
	const q = route.query;
	const after = q.get("after");
	/* The first page moves on by itself; an older one stands still. */
	const query = useQuery<{ runs: RunRow[]; next: string | null }>(apiPath(q), after ? 0 : 4000);
	const shown = useRef<{ runs: RunRow[]; next: string | null } | null>(null);
	if (query.data) shown.current = query.data;
	/* While another page is read, the old rows stay: nothing jumps. */
	const page = query.data ?? (query.error ? null : shown.current);
	const sort = q.get("sort") ?? "created";
	const set = (key: string, value: string) => {
		const n = new URLSearchParams(q);
		if (value) n.set(key, value);
		else n.delete(key);
		n.delete("after");
		setQuery(n);
	};
	const isFiltered = FILTERS.some((f) => q.get(f));
	const [unfolded, setUnfolded] = useState(false);
	return (
		<main id="main" tabIndex={-1}>
			<div class="page-head"><h1>Runs</h1></div>
			<form class={"filters" + (unfolded || isFiltered ? "" : " folded")} role="search" aria-label="Runs" onSubmit={(e) => e.preventDefault()}>
				<SearchBox value={q.get("analysis") ?? ""} onInput={(v) => set("analysis", v)} />
				<Select label="Status" value={q.get("status") ?? ""} any="any status" options={STATUSES} onChange={(v) => set("status", v)} />
				{!unfolded && !isFiltered && <button type="button" class="unfold" onClick={() => setUnfolded(true)}>More filters</button>}
				<Select isOptional label="Reason" value={q.get("reason") ?? ""} any="any reason" options={REASONS} onChange={(v) => set("reason", v)} />
				<Field label="Runtime" value={q.get("runtime") ?? ""} onChange={(v) => set("runtime", v)} />
				<Field label="User" value={q.get("user") ?? ""} onChange={(v) => set("user", v)} />
				<label class="field optional">
					<span class="vh">Created</span>
					<select value={q.get("since") ?? ""} onChange={(e) => set("since", e.currentTarget.value)}>
						<option value="">any time</option>
						<option value="1h">last hour</option>
						<option value="24h">last 24 hours</option>
						<option value="7d">last 7 days</option>
						<option value="30d">last 30 days</option>
					</select>
				</label>
				<label class="field optional">
					<span class="vh">Order</span>
					<select value={sort} onChange={(e) => set("sort", e.currentTarget.value === "created" ? "" : e.currentTarget.value)}>
						{SORTS.map(([s, text]) => <option key={s} value={s}>{text}</option>)}
					</select>
				</label>
				<label class="check optional">
					<input type="checkbox" checked={!!q.get("parts")} onChange={(e) => set("parts", e.currentTarget.checked ? "1" : "")} /> steps of pipelines
				</label>
				{isFiltered && <button type="button" class="ghost" onClick={() => setQuery(new URLSearchParams(sort === "created" ? "" : "sort=" + sort))}>Clear</button>}
			</form>
			{query.error && query.error.status !== 503 && query.error.status !== 0 && <Failure error={query.error} />}
			{!page ? (!query.error && <Pending query={query} what="the runs" />) : (
				<>
					<RunTable runs={page.runs} isStale={!query.data} />
					{page.runs.length === 0 && <Empty>{isFiltered ? "No run matches." : after ? "No older run." : "No run has been recorded yet. Start one: forge run -- echo hello"}</Empty>}
					<nav class="pager" aria-label="Pages of runs">
						{after && <button type="button" onClick={() => history.back()}>← Newer</button>}
						{after && <button type="button" class="ghost" onClick={() => set("after", "")}>First page</button>}
						<span class="grow" />
						{page.next && sort === "created" && (
							<button type="button" onClick={() => {
								const n = new URLSearchParams(q);
								n.set("after", page.next!);
								setQuery(n, true);
								scrollTo(0, 0);
							}}>Older →</button>
						)}
						{sort !== "created" && <span class="faint small">the first {page.runs.length} in this order; filter to see others</span>}
					</nav>
				</>
			)}
		</main>
	);
}

function SearchBox({ value, onInput }: { value: string; onInput: (v: string) => void }) {
	const [text, setText] = useState(value);
	const sent = useRef(value), timer = useRef(0);
	useEffect(() => {
		if (value !== sent.current) {
			sent.current = value;
			setText(value);
		}
	}, [value]);
	useEffect(() => () => clearTimeout(timer.current), []);
	return (
		<label class="field search">
			<span class="vh">Name of the analysis (* and ? are patterns)</span>
			<Icon name="search" size={14} />
			<input type="search" data-search value={text} placeholder="name or pattern*" autocomplete="off" spellcheck={false} maxLength={64}
				onInput={(e) => {
					const v = e.currentTarget.value;
					setText(v);
					clearTimeout(timer.current);
					timer.current = window.setTimeout(() => {
						sent.current = v.trim();
						onInput(v.trim());
					}, 200);
				}} />
		</label>
	);
}

function Select({ isOptional, label, value, any, options, onChange }: { isOptional?: boolean; label: string; value: string; any: string; options: string[]; onChange: (v: string) => void }) {
	return (
		<label class={"field" + (isOptional ? " optional" : "")}>
			<span class="vh">{label}</span>
			<select value={value} onChange={(e) => onChange(e.currentTarget.value)}>
				<option value="">{any}</option>
				{value && !options.includes(value) && <option value={value}>{visible(value)}</option>}
				{options.map((o) => <option key={o} value={o}>{o.replace(/_/g, " ")}</option>)}
			</select>
		</label>
	);
}

function Field({ label, value, onChange }: { label: string; value: string; onChange: (v: string) => void }) {
	return (
		<label class="field optional">
			<span class="vh">{label}</span>
			<input value={value} placeholder={label.toLowerCase()} size={10} autocomplete="off" spellcheck={false} maxLength={64} onChange={(e) => onChange(e.currentTarget.value.trim())} />
		</label>
	);
}

export function RunTable({ runs, isStale }: { runs: RunRow[]; isStale?: boolean }) {
	if (runs.length === 0) return null;
	return (
		<div class={"table-wrap" + (isStale ? " stale" : "")}>
			<table class="runs">
				<caption class="vh">Runs</caption>
				<thead>
					<tr>
						<th scope="col">Status</th>
						<th scope="col">Analysis</th>
						<th scope="col" class="wide-only">Verdict</th>
						<th scope="col" class="wide-only">Runtime</th>
						<th scope="col" class="r">Memory</th>
						<th scope="col" class="r">Time</th>
						<th scope="col" class="r">Created</th>
					</tr>
				</thead>
				<tbody>
					{runs.map((r) => (
						<tr key={r.run_id} data-row onClick={(e) => {
							/* The whole row is a target for a pointer; the link is the one for everybody else. */
							if (!(e.target as Element).closest("a,button") && !getSelection()?.toString()) location.hash = href("runs", r.run_id);
						}}>
							<td><Status status={r.status} reason={r.reason} /></td>
							<th scope="row"><a href={href("runs", r.run_id)}><Name text={r.analysis_id} most={64} /></a></th>
							<td class="wide-only sentence"><Sentence text={r.completion_notes ?? ""} /></td>
							<td class="wide-only"><Name text={r.runtime} most={40} /></td>
							<td class="r num">{r.memory_peak_bytes === null ? "–" : bytes(r.memory_peak_bytes)}<Share used={r.memory_peak_bytes} limit={r.memory_limit_bytes} /></td>
							<td class="r num">{duration(r.wall_seconds)}</td>
							<td class="r"><Time at={r.created_at} /></td>
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function Share({ used, limit }: { used: number | null; limit: number | null }) {
	if (used === null || !limit) return null;
	const share = Math.min(1, used / limit);
	return (
		<span class={"tiny-bar" + (share >= 0.95 ? " full" : share >= 0.8 ? " high" : "")} title={`${Math.round(share * 100)} % of ${bytes(limit)}`} aria-hidden="true">
			<span style={{ width: (share * 100).toFixed(1) + "%" }} />
		</span>
	);
}
