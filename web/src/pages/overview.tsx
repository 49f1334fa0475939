// What happens now, and what went wrong last.
// SPDX-License-Identifier: Apache-2.0
import { useRef } from "preact/hooks";
import { Budget, HealthRow, Live, noteOverview, Overview, RunRow, useQuery } from "../api";
import { Sparkline, Stack } from "../charts";
import { bytes, count, cpus } from "../format";
import { href } from "../router";
import { visible } from "../text";
import { Card, Elapsed, Empty, HealthStrip, isOpen, memoryText, Meter, Name, Pending, Sentence, Status, Time, toneOf } from "../ui";

interface Trace { memory: (number | null)[]; cpuRate: number | null; cpuSeconds: number | null; at: number }

/* The page remembers the last two minutes of what it saw; the server has the rest. */
function remember(traces: Map<string, Trace>, o: Overview): void {
	const at = Date.parse(o.now), ids = new Set(o.running.map((r) => r.run_id));
	for (const id of traces.keys()) if (!ids.has(id)) traces.delete(id);
	for (const r of o.running.slice(0, 100)) {
		const t = traces.get(r.run_id) ?? { memory: [], cpuRate: null, cpuSeconds: null, at: 0 };
		if (at <= t.at) continue;
		const cpu = r.live?.cpu_seconds ?? null;
		if (cpu !== null && t.cpuSeconds !== null) t.cpuRate = Math.max(0, (cpu - t.cpuSeconds) / ((at - t.at) / 1000));
		t.memory = [...t.memory, r.live?.memory_bytes ?? null].slice(-60);
		t.cpuSeconds = cpu;
		t.at = at;
		traces.set(r.run_id, t);
	}
}

export function OverviewPage() {
	const query = useQuery<Overview>("/api/v1/overview", 2000);
	const traces = useRef(new Map<string, Trace>()).current;
	const o = query.data;
	if (!o) return <main id="main" tabIndex={-1}><h1>Overview</h1><Pending query={query} what="the overview" /></main>;
	noteOverview(o);
	remember(traces, o);
	const day = Object.entries(o.counts);
	const ended = day.filter(([s]) => !isOpen(s));
	const total = ended.reduce((n, [, v]) => n + v, 0);
	const order = ["succeeded", "failed", "killed", "corrupted", "lost", "rejected", "cancelled"];
	ended.sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
	return (
		<main id="main" tabIndex={-1}>
			<div class="page-head">
				<h1>Overview</h1>
				<p class="faint sub">
					<span><Name text={o.host} /></span> · <span class="mono small">{visible(o.store.url)}</span>
				</p>
			</div>
			<div class="tiles">
				<a class="tile" href="#/runs?status=running">
					<span class="tile-n num t-running">{count(o.running.length)}</span>
					<span class="tile-l">running</span>
				</a>
				<a class="tile" href="#/runs?status=queued">
					<span class="tile-n num t-queued">{count(o.queued.length)}</span>
					<span class="tile-l">waiting</span>
				</a>
				<div class="tile wide">
					<div class="tile-row">
						<span class="tile-l">{total === 0 ? "no run ended in the last 24 hours" : `${count(total)} ended in the last 24 hours`}</span>
					</div>
					<Stack label={ended.map(([s, n]) => `${n} ${s}`).join(", ") || "nothing"} parts={ended.map(([s, n]) => ({ key: s, tone: toneOf(s), value: n }))} />
					<ul class="legend">
						{ended.map(([s, n]) => (
							<li key={s}>
								<a href={"#/runs?since=24h&status=" + encodeURIComponent(s)} class={toneOf(s)}>
									<i class="swatch" aria-hidden="true" /><b class="num">{count(n)}</b> {visible(s)}
								</a>
							</li>
						))}
					</ul>
				</div>
				<HostBudget budget={o.budget} />
			</div>
			<div class="columns">
				<div class="col">
					<Running runs={o.running} traces={traces} />
					<Queue runs={o.queued} />
					<HealthCard rows={o.health} />
				</div>
				<div class="col">
					<Failures runs={o.failures} />
				</div>
			</div>
		</main>
	);
}

function HostBudget({ budget }: { budget: Budget | null }) {
	return (
		<div class="tile wide">
			<span class="tile-l">host budget</span>
			{budget ? (
				<>
					<Meter label="Memory" used={budget.memory_used_bytes} limit={budget.memory_bytes} text={memoryText(budget.memory_used_bytes, budget.memory_bytes)} />
					<Meter label="CPUs" used={budget.cpus_used} limit={budget.cpus} text={`${cpus(budget.cpus_used)} of ${cpus(budget.cpus)}`} />
				</>
			) : (
				<Empty>This host has no budget for all runs together.</Empty>
			)}
		</div>
	);
}

function Running({ runs, traces }: { runs: Live[]; traces: Map<string, Trace> }) {
	return (
		<Card title="Running now" extra={<span class="badge num">{runs.length}</span>}>
			{runs.length === 0 && <Empty>Nothing runs.</Empty>}
			<ul class="rows">
				{runs.slice(0, 40).map((r) => {
					const t = traces.get(r.run_id), memory = r.live?.memory_bytes ?? null, limit = r.limits?.memory_bytes ?? null;
					return (
						<li key={r.run_id} class="live-row">
							<div class="live-name">
								<a href={href("runs", r.run_id)} class="strong"><Name text={r.analysis_id} most={64} /></a>
								<span class="faint small line">
									<Status status={r.status} compact /> <Elapsed since={r.started_at ?? r.created_at} />
									{r.runtime && <> · <Name text={r.runtime} most={40} /></>}
								</span>
							</div>
							{t && t.memory.length > 1 && <Sparkline values={t.memory} top={limit ?? Math.max(1, ...t.memory.map((m) => m ?? 0)) * 1.2} label={`Memory of ${visible(r.analysis_id)} in the last minutes, now ${bytes(memory)}`} />}
							<div class="live-meters">
								<Meter label="Memory" used={memory} limit={limit} text={memoryText(memory, limit)} />
								<Meter label="CPU" used={t?.cpuRate ?? null} limit={r.limits?.cpus ?? null}
									text={t?.cpuRate === null || t?.cpuRate === undefined ? `– of ${cpus(r.limits?.cpus)}` : `${t.cpuRate.toFixed(2)} of ${cpus(r.limits?.cpus)}`} />
							</div>
						</li>
					);
				})}
			</ul>
			{runs.length > 40 && <p class="more"><a href="#/runs?status=running">All {runs.length} running</a></p>}
		</Card>
	);
}

function Queue({ runs }: { runs: Live[] }) {
	return (
		<Card title="Waiting" extra={<span class="badge num">{runs.length}</span>}>
			{runs.length === 0 && <Empty>Nothing waits.</Empty>}
			<ol class="rows">
				{runs.slice(0, 20).map((r) => (
					<li key={r.run_id} class="wait-row">
						<a href={href("runs", r.run_id)} class="strong"><Name text={r.analysis_id} most={64} /></a>
						<span class="faint small"><Elapsed since={r.created_at} /></span>
						<span class="why"><Sentence text={r.why ?? "It waits for its turn."} /></span>
					</li>
				))}
			</ol>
			{runs.length > 20 && <p class="more"><a href="#/runs?status=queued">All {runs.length} waiting</a></p>}
		</Card>
	);
}

function Failures({ runs }: { runs: RunRow[] }) {
	return (
		<Card title="Last failures" extra={<a href="#/runs?status=failed">failed runs</a>}>
			{runs.length === 0 && <Empty>No run has failed.</Empty>}
			<ul class="rows">
				{runs.map((r) => (
					<li key={r.run_id} class="fail-row">
						<Status status={r.status} reason={r.reason} />
						<a href={href("runs", r.run_id)} class="strong"><Name text={r.analysis_id} most={64} /></a>
						<span class="faint small right"><Time at={r.ended_at ?? r.created_at} /></span>
						<span class="sentence"><Sentence text={r.completion_notes ?? "No sentence was recorded."} /></span>
					</li>
				))}
			</ul>
		</Card>
	);
}

function HealthCard({ rows }: { rows: HealthRow[] }) {
	return (
		<Card title="Health checks" extra={<a href="#/health">details</a>}>
			{rows.length === 0 && <Empty>No check of this host has been recorded.</Empty>}
			<ul class="rows">
				{rows.map((h) => (
					<li key={h.name} class="health-row">
						<Name text={h.name} most={40} />
						<HealthStrip row={h} />
						<span class={"small right num " + (h.failed ? "t-failed" : "faint")}>{h.failed ? `${count(h.failed)} failed` : `${count(h.checks)} ok`}</span>
					</li>
				))}
			</ul>
		</Card>
	);
}
