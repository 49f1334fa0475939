// One run: the verdict first, then what it used, printed, left, and how it was made.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, Limits, post, Record_, request, RunEvent, RunPage as Page, serverNow, useApiState, useQuery } from "../api";
import { Chart, Point } from "../charts";
import { bytes, count, cpus, duration, durationText, exact, sizeText, suggestedLimits } from "../format";
import { LogView } from "../log";
import { Outputs } from "../outputs";
import { href } from "../router";
import { cut, shellQuote, visible, visibleLines } from "../text";
import { Card, Copy, Dialog, Digest, Elapsed, Empty, Facts, Failure, Icon, isBad, isOpen, Meter, Name, Pending, Sentence, Status, Time, toneOf } from "../ui";

interface Samples { columns: string[]; samples: (number | null)[][] }

export function RunPage({ id }: { id: string }) {
	const isKnownOpen = useRef(true);
	const base = "/api/v1/runs/" + encodeURIComponent(id);
	const query = useQuery<Page>(base, isKnownOpen.current ? 2000 : 0);
	const page = query.data;
	const isLive = page ? isOpen(page.record.status) : true;
	isKnownOpen.current = isLive;
	const events = useQuery<{ events: RunEvent[] }>(base + "/events", isLive ? 2000 : 0);
	const samples = useQuery<Samples>(base + "/samples", isLive ? 2000 : 0);
	/* What came between the last question and the end is asked for once more. */
	const wasLive = useRef<boolean | null>(null);
	useEffect(() => {
		if (!page) return;
		if (wasLive.current && !isLive) {
			events.reload();
			samples.reload();
		}
		wasLive.current = isLive;
	}, [isLive, page === null]);
	useEffect(() => {
		if (page) document.title = `${visible(page.record.analysis_id)} ${page.record.status} · Forge`;
	}, [page?.record.analysis_id, page?.record.status]);
	if (!page)
		return (
			<main id="main" tabIndex={-1}>
				<p class="crumbs"><a href="#/runs">Runs</a></p>
				<h1>Run <span class="mono">{visible(cut(id, 40))}</span></h1>
				<Pending query={query} what="the run" />
			</main>
		);
	const r = page.record;
	return (
		<main id="main" tabIndex={-1}>
			<p class="crumbs"><a href="#/runs">Runs</a> <span aria-hidden="true">/</span> <span class="mono">{visible(r.run_id)}</span> <Copy text={r.run_id} label="Copy the run id" /></p>
			<div class="run-head">
				<div class="run-title">
					<h1><Name text={r.analysis_id} /></h1>
					<Status status={r.status} reason={r.reason} />
				</div>
				<Actions record={r} isLive={isLive} onChange={query.reload} />
			</div>
			<p class={"verdict " + (isBad(r.status) ? "bad " : "") + toneOf(r.status)} role="status">
				{r.completion_notes ? <Sentence text={r.completion_notes} />
					: page.why ? <Sentence text={page.why} />
					: isLive ? <>{r.status === "queued" ? "Waiting" : r.status === "running" ? "Running" : r.status === "collecting" ? "Collecting its outputs" : "Preparing"}{", for "}<Elapsed since={r.started_at ?? r.created_at} />.</>
					: "No sentence was recorded."}
			</p>
			{query.error && query.error.status !== 0 && query.error.status !== 503 && <Failure error={query.error} />}
			<RunFacts page={page} />
			<div class="columns run">
				<div class="col main-col">
					<Resources record={r} samples={samples.data} isLive={isLive} />
					<LogView key={id} id={encodeURIComponent(id)} isLive={isLive} onStatus={query.reload}
						isCut={{ stdout: r.usage?.stdout_truncated === true, stderr: r.usage?.stderr_truncated === true }} />
					{!isLive && <Outputs id={encodeURIComponent(id)} />}
				</div>
				<div class="col side-col">
					<Budget page={page} hasSamples={!samples.data || samples.data.samples.length > 0} />
					<Timeline events={events.data?.events ?? null} record={r} />
				</div>
			</div>
			<Provenance record={r} />
		</main>
	);
}

function RunFacts({ page }: { page: Page }) {
	const r = page.record;
	const rows: [string, preact.ComponentChildren][] = [
		["Created", <Time at={r.created_at} />],
		[r.ended_at ? "Took" : "Elapsed", r.ended_at ? <span class="num">{duration(r.usage?.wall_seconds as number)}</span> : <Elapsed since={r.started_at ?? r.created_at} />],
		["Runtime", r.runtime ? <a href={href("runtimes", r.runtime.name)}><Name text={r.runtime.name} most={40} /></a> : <span class="faint">none named</span>],
		["Where", <><Name text={r.executor} most={40} /> on <Name text={r.host} most={40} /></>],
		["User", <Name text={r.user} most={40} />],
	];
	if (r.exit_code !== null && r.exit_code !== undefined) rows.push(["Exit code", <span class="num">{r.exit_code}</span>]);
	if (r.signal !== null && r.signal !== undefined) rows.push(["Signal", <span class="num">{visible(String(r.signal))}</span>]);
	if (r.rerun_of) rows.push(["Rerun of", <a href={href("runs", r.rerun_of)} class="mono">{visible(r.rerun_of)}</a>]);
	if ((r.attempt ?? 1) > 1 || r.parent_run || page.next_attempt)
		rows.push(["Attempt", <>
			{r.parent_run && <a href={href("runs", r.parent_run)} title="The attempt before">← </a>}
			<span class="num">{r.attempt ?? 1}</span>
			{page.next_attempt && <a href={href("runs", page.next_attempt)} title="The next attempt"> next →</a>}
		</>]);
	return <Facts rows={rows} />;
}

/* ---- kill, rerun, resume ---- */

const FIELDS: [string, string, string, (l: Limits) => string][] = [
	["memory", "Memory", "like 4G", (l) => (l.memory_bytes ? sizeText(l.memory_bytes) : "")],
	["timeout", "Time", "like 2h", (l) => (l.wall_seconds ? durationText(l.wall_seconds) : "")],
	["cpus", "CPUs", "like 2", (l) => (l.cpus ? String(l.cpus) : "")],
	["cpu_time", "CPU time", "like 1h", (l) => (l.cpu_seconds ? durationText(l.cpu_seconds) : "")],
	["disk", "Disk", "like 20G", (l) => (l.disk_bytes ? sizeText(l.disk_bytes) : "")],
	["pids", "Processes", "like 200", (l) => (l.pids ? String(l.pids) : "")],
	["output_limit", "Log", "like 128M", (l) => (l.output_bytes ? sizeText(l.output_bytes) : "")],
];

function Actions({ record, isLive, onChange }: { record: Record_; isLive: boolean; onChange: () => void }) {
	const { access } = useApiState();
	const [dialog, setDialog] = useState<"kill" | "rerun" | "resume" | null>(null);
	if (access !== "operator") return null;
	return (
		<div class="actions">
			{isLive && <button type="button" class="danger" onClick={() => setDialog("kill")}><Icon name="killed" size={14} /> Kill</button>}
			{!isLive && record.status !== "succeeded" && <button type="button" class={record.step ? "primary" : ""} onClick={() => setDialog("resume")}><Icon name="running" size={14} /> {record.step ? "Resume the pipeline" : "Resume"}</button>}
			{/* Only its pipeline has the inputs of a step. */}
			{!isLive && !record.step && <button type="button" class="primary" onClick={() => setDialog("rerun")}><Icon name="rerun" size={14} /> {isBad(record.status) ? "Rerun with more" : "Rerun"}</button>}
			{dialog === "kill" && <KillDialog record={record} onClose={() => setDialog(null)} onDone={onChange} />}
			{(dialog === "rerun" || dialog === "resume") && <AgainDialog record={record} verb={dialog} onClose={() => setDialog(null)} />}
		</div>
	);
}

function KillDialog({ record, onClose, onDone }: { record: Record_; onClose: () => void; onDone: () => void }) {
	const [error, setError] = useState<ApiError | null>(null);
	const [busy, setBusy] = useState(false);
	const kill = async () => {
		setBusy(true);
		try {
			await request(`/api/v1/runs/${encodeURIComponent(record.run_id)}/kill`, { method: "POST", body: "{}", headers: { "Content-Type": "application/json" } });
			onDone();
			onClose();
		} catch (e) {
			setError(e as ApiError);
			setBusy(false);
		}
	};
	return (
		<Dialog title="Kill this run?" onClose={onClose}>
			<p>Everything that <strong><Name text={record.analysis_id} /></strong> has started will end. Its log is kept; outputs that were not collected are lost.</p>
			{error && <Failure error={error} />}
			<div class="dialog-foot">
				<button type="button" onClick={onClose}>Let it run</button>
				<button type="button" class="danger solid" disabled={busy} onClick={kill}>{busy ? "Killing …" : "Kill it"}</button>
			</div>
		</Dialog>
	);
}

function AgainDialog({ record, verb, onClose }: { record: Record_; verb: "rerun" | "resume"; onClose: () => void }) {
	const before = Object.fromEntries(FIELDS.map(([key, , , of]) => [key, record.limits ? of(record.limits) : ""]));
	const suggested = suggestedLimits(record.completion_notes);
	const [values, setValues] = useState<Record<string, string>>({ ...before, ...suggested });
	const [error, setError] = useState<ApiError | null>(null);
	const [busy, setBusy] = useState(false);
	const start = async () => {
		setBusy(true);
		setError(null);
		const limits = Object.fromEntries(Object.entries(values).map(([k, v]) => [k, v.trim()]).filter(([k, v]) => v !== "" && v !== before[k]));
		try {
			const { run_id } = await post<{ run_id: string | null }>(`/api/v1/runs/${encodeURIComponent(record.run_id)}/${verb}`, { limits });
			onClose();
			/* A step that waits for others has no run yet: its pipeline shows it. */
			location.hash = run_id ? href("runs", run_id) : href("pipelines");
		} catch (e) {
			setError(e as ApiError);
			setBusy(false);
		}
	};
	return (
		<Dialog title={verb === "rerun" ? "Run the same again" : record.step ? "Resume the pipeline at this step" : "Resume this run"} onClose={onClose}>
			<form onSubmit={(e) => (e.preventDefault(), start())}>
				<p class="faint">{verb === "rerun" ? "The same command, runtime and inputs as a new run." : record.step ? "The pipeline goes on: what is done stays done, this step gets these limits, and those after it follow." : "A new attempt that goes on from what this run left."} Only limits that you change are changed.</p>
				<div class="limit-fields">
					{FIELDS.map(([key, label, hint]) => (
						<label key={key} class={values[key] !== before[key] ? "changed" : ""}>
							<span>{label}</span>
							<input name={key} value={values[key]} placeholder={hint} autocomplete="off" spellcheck={false} maxLength={32}
								onInput={(e) => setValues({ ...values, [key]: e.currentTarget.value })} />
							<small class="faint">{values[key] !== before[key] ? (before[key] ? `was ${before[key]}` : "was not limited") + (suggested[key] === values[key] ? ", as the verdict suggests" : "") : "\u00a0"}</small>
						</label>
					))}
				</div>
				{error && <Failure error={error} />}
				<div class="dialog-foot">
					<button type="button" onClick={onClose}>Cancel</button>
					<button type="submit" class="primary" disabled={busy}>{busy ? "Starting …" : verb === "rerun" ? "Run it" : "Resume it"}</button>
				</div>
			</form>
		</Dialog>
	);
}

/* ---- resources ---- */

function Resources({ record, samples, isLive }: { record: Record_; samples: Samples | null; isLive: boolean }) {
	const [hover, setHover] = useState<number | null>(null);
	const [shown, setShown] = useState(false);
	if (!samples) return null;
	const at = (name: string) => samples.columns.indexOf(name);
	const [s, m, c, p, d] = ["seconds", "memory_bytes", "cpu_seconds", "pids", "disk_bytes"].map(at);
	const rows = samples.samples.filter((r) => typeof r[s] === "number");
	if (rows.length === 0)
		return isLive && record.status === "running"
			? <Card title="Resources"><Empty>There is no sample yet.</Empty></Card>
			: null;
	const points = (k: number): Point[] => (k < 0 ? [] : rows.map((r) => [r[s]!, r[k] ?? null]));
	const cpu: Point[] = [];
	if (c >= 0)
		rows.forEach((r, i) => {
			if (i === 0) return;
			const before = rows[i - 1], dt = r[s]! - before[s]!;
			cpu.push([r[s]!, r[c] === null || before[c] === null || dt <= 0 ? null : Math.max(0, (r[c]! - before[c]!) / dt)]);
		});
	const wall = record.usage?.wall_seconds as number | null;
	const seconds = Math.max(rows[rows.length - 1][s]!, !isLive && wall ? wall : 0, 0.1);
	const has = (k: number) => k >= 0 && rows.some((r) => r[k] !== null);
	const common = { seconds, hover, onHover: setHover };
	return (
		<Card title="Resources" extra={<button type="button" class="ghost" aria-expanded={shown} onClick={() => setShown(!shown)}>{shown ? "Charts only" : "As a table"}</button>}>
			<div class="charts">
				<Chart title="Memory" unit="bytes" tone="c-memory" points={points(m)} limit={record.limits?.memory_bytes ?? null} height={150} {...common} />
				{cpu.length > 0 && <Chart title="CPUs" unit="cpus" tone="c-cpu" points={cpu} limit={record.limits?.cpus ?? null} height={112} {...common} />}
				{(has(p) || has(d)) && (
					<div class="chart-pair">
						{has(p) && <Chart title="Processes" unit="count" tone="c-pids" points={points(p)} limit={record.limits?.pids ?? null} height={96} {...common} />}
						{has(d) && <Chart title="Disk" unit="bytes" tone="c-disk" points={points(d)} limit={record.limits?.disk_bytes ?? null} height={96} {...common} />}
					</div>
				)}
			</div>
			{shown && (
				<div class="csv" tabIndex={0} role="region" aria-label="Samples">
					<table>
						<thead><tr><th scope="col" class="r">Time</th><th scope="col" class="r">Memory</th><th scope="col" class="r">CPU time</th><th scope="col" class="r">Processes</th><th scope="col" class="r">Disk</th></tr></thead>
						<tbody>
							{rows.slice(-300).map((r, i) => (
								<tr key={i}>
									<td class="r num">{duration(r[s])}</td>
									<td class="r num">{bytes(r[m])}</td>
									<td class="r num">{duration(r[c])}</td>
									<td class="r num">{count(r[p])}</td>
									<td class="r num">{bytes(r[d])}</td>
								</tr>
							))}
						</tbody>
					</table>
				</div>
			)}
		</Card>
	);
}

function Budget({ page, hasSamples }: { page: Page; hasSamples: boolean }) {
	const r = page.record, l = r.limits, u = r.usage ?? {}, live = page.live;
	const n = (k: string) => (typeof u[k] === "number" ? (u[k] as number) : null);
	const of = (used: number | null, limit: number | null | undefined, say: (n: number | null) => string) =>
		`${say(used)} of ${limit ? say(limit) : "unlimited"}`;
	const wall = n("wall_seconds") ?? (r.started_at && !r.ended_at ? (serverNow() - Date.parse(r.started_at)) / 1000 : null);
	const rows: [string, number | null, number | null | undefined, (n: number | null) => string][] = [
		["Memory", live?.memory_bytes ?? n("memory_peak_bytes"), l?.memory_bytes, bytes],
		["Time", wall, l?.wall_seconds, duration],
		["CPU time", live?.cpu_seconds ?? n("cpu_seconds"), l?.cpu_seconds, duration],
		["Processes", live?.pids ?? n("pids_peak"), l?.pids, count],
		["Disk", live?.disk_bytes ?? n("disk_peak_bytes"), l?.disk_bytes, bytes],
		["stdout", n("stdout_bytes"), l?.output_bytes, bytes],
		["stderr", n("stderr_bytes"), l?.output_bytes, bytes],
	];
	return (
		<Card title="Used against allowed">
			<div class="meters">
				{rows.filter(([label, used, limit]) => used !== null || (limit && !label.startsWith("std"))).map(([label, used, limit, say]) => (
					<Meter key={label} label={label} used={used} limit={limit ?? null} text={of(used, limit, say)} isPeak={!live} />
				))}
				<p class="faint small">{cpus(l?.cpus)} {l?.cpus === 1 ? "CPU" : "CPUs"}{live ? ", values of this moment" : ", highest values of the whole run"}.{!live && !hasSamples && r.started_at ? " It was too short for a chart, or of an older forge." : ""}</p>
			</div>
		</Card>
	);
}

function Timeline({ events, record }: { events: RunEvent[] | null; record: Record_ }) {
	const [all, setAll] = useState(false);
	if (!events) return null;
	const start = Date.parse(record.created_at);
	const phases: { status: string; from: number; to: number }[] = [];
	for (const e of events)
		if (e.status && isOpen(e.status)) {
			if (phases.length) phases[phases.length - 1].to = Date.parse(e.time);
			phases.push({ status: e.status, from: Date.parse(e.time), to: NaN });
		} else if (e.status && phases.length && isNaN(phases[phases.length - 1].to)) {
			phases[phases.length - 1].to = Date.parse(e.time);
		}
	if (phases.length && isNaN(phases[phases.length - 1].to) && !record.ended_at) phases[phases.length - 1].to = serverNow();
	const known = phases.filter((p) => p.to >= p.from);
	const total = known.reduce((n, p) => n + (p.to - p.from), 0) || 1;
	const shown = all ? events.slice(0, 1000) : events.slice(0, 12);
	return (
		<Card title="Timeline">
			{known.length > 0 && (
				<div class="phases" role="img" aria-label={known.map((p) => `${p.status} ${duration((p.to - p.from) / 1000)}`).join(", ")}>
					{known.map((p, i) => (
						<span key={i} class={toneOf(p.status)} style={{ flexGrow: String(Math.max((p.to - p.from) / total, 0.03)) }} title={`${p.status} ${duration((p.to - p.from) / 1000)}`} />
					))}
				</div>
			)}
			{events.length === 0 && <Empty>No event was recorded.</Empty>}
			<ol class="events">
				{shown.map((e) => (
					<li key={e.seq} class={e.status ? toneOf(e.status) : ""}>
						<span class="dot-mark" aria-hidden="true" />
						<span class="event-name">{visible(e.event.replace(/_/g, " "))}</span>
						<time class="num faint small" dateTime={e.time} title={exact(Date.parse(e.time))}>+{duration(Math.max(0, (Date.parse(e.time) - start) / 1000))}</time>
						{e.detail && e.detail !== e.event && <span class="faint small detail">{visible(cut(e.detail, 400))}</span>}
					</li>
				))}
			</ol>
			{events.length > 12 && !all && <p class="more"><button type="button" class="link" onClick={() => setAll(true)}>All {events.length} events</button></p>}
		</Card>
	);
}

/* ---- provenance ---- */

function Provenance({ record: r }: { record: Record_ }) {
	const command = shellQuote(r.command ?? []);
	const [all, setAll] = useState(false);
	const inputs = r.inputs ?? [];
	const checks = Object.entries(r.health ?? {}).flatMap(([when, h]) => (h?.checks ?? []).filter((c) => !c.ok).map((c) => ({ when, ...c })));
	const env = Array.isArray(r.asked?.env) ? r.asked!.env.map((e) => (typeof e === "string" ? e : JSON.stringify(e))) : [];
	return (
		<Card title="Provenance" class="provenance">
			<div class="command">
				<pre class="text" tabIndex={0} aria-label="Command">{visibleLines(cut(command, 20000))}</pre>
				<Copy text={command} label="Copy the command" />
			</div>
			<div class="prov-grid">
				<div>
					<h3>Runtime</h3>
					{r.runtime ? (
						<Facts rows={[
							["Name", <><a href={href("runtimes", r.runtime.name)}><Name text={r.runtime.name} most={60} /></a> <span class="faint">({visible(r.runtime.kind)})</span></>],
							["Digest", <Digest value={r.runtime.digest} />],
							...(r.runtime.why ? [["Chosen", visible(r.runtime.why)] as [string, string]] : []),
							...Object.entries(r.runtime.versions ?? {}).slice(0, 12).map(([k, v]) => [visible(k), visible(String(v))] as [string, string]),
						]} />
					) : <p class="faint">None named: the system's programs.</p>}
				</div>
				<div>
					<h3>Isolation</h3>
					{r.isolation ? (
						<Facts rows={[
							["Level", <strong class={r.isolation.level === "full" ? "t-succeeded" : "t-killed"}>{visible(r.isolation.level)}</strong>],
							...(r.isolation.missing?.length ? [["Missing", visible(r.isolation.missing.join(", "))] as [string, string]] : []),
							["Network", visible(r.network ?? "–")],
							...Object.entries(r.isolation.mechanisms ?? {}).map(([k, v]) => [visible(k), visible(String(v))] as [string, string]),
						]} />
					) : <p class="faint">{isOpen(r.status) ? "It is recorded when the run ends." : "Not recorded."}</p>}
				</div>
				<div>
					<h3>Asked</h3>
					<Facts rows={[
						["Profile", <Name text={r.profile ?? "–"} />],
						["Directory", <Name text={r.asked?.cwd ?? "–"} mono />],
						["Workdir", <Name text={r.workdir ?? "–"} mono />],
						["Environment", env.length ? <Name text={env.join(" ")} most={300} mono /> : "nothing added"],
						["Priority", <span class="num">{r.priority ?? 0}</span>],
						["Forge", visible(r.forge_version ?? "–")],
						["Host health", checks.length === 0 ? "ok before and after" : <>{checks.map((c) => <span class="t-failed">{visible(`${c.when}: ${c.name}: ${c.text}`)} </span>)}</>],
					]} />
				</div>
			</div>
			<h3>Inputs</h3>
			{inputs.length === 0 ? <p class="faint">None.</p> : (
				<div class="table-wrap">
					<table class="outputs">
						<caption class="vh">Inputs with digests</caption>
						<thead><tr><th scope="col">Path</th><th scope="col" class="r">Size</th><th scope="col">SHA-256</th></tr></thead>
						<tbody>
							{inputs.slice(0, all ? 2000 : 20).map((i, k) => (
								<tr key={k}><th scope="row" class="path"><Name text={i.path} most={200} mono /></th><td class="r num nowrap">{bytes(i.size)}</td><td><Digest value={i.sha256} /></td></tr>
							))}
						</tbody>
					</table>
				</div>
			)}
			{inputs.length > 20 && !all && <p class="more"><button type="button" class="link" onClick={() => setAll(true)}>All {count(inputs.length)} inputs</button></p>}
		</Card>
	);
}

