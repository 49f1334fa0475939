// Pipelines: a graph with the colours of what happens, and when each task ran.
// SPDX-License-Identifier: Apache-2.0
import { useMemo, useState } from "preact/hooks";
import { Pipeline, PipelineRow, Task, useQuery } from "../api";
import { Stack, useWidth } from "../charts";
import { bytes, count, duration, timeTicks } from "../format";
import { layout } from "../graph";
import { href } from "../router";
import { cut, visible } from "../text";
import { Card, Empty, Facts, Meter, Name, Pending, Status, Time, toneOf, useNow } from "../ui";

const ORDER = ["done", "ran", "cached", "running", "failed", "skipped", "waiting"];
/* More boxes than this are drawn as one a step. */
const MOST_BOXES = 120, MOST_BARS = 200;

export function PipelinesPage() {
	const query = useQuery<{ pipelines: PipelineRow[] }>("/api/v1/pipelines", 4000);
	const rows = query.data?.pipelines;
	return (
		<main id="main" tabIndex={-1}>
			<div class="page-head"><h1>Pipelines</h1></div>
			{!rows ? <Pending query={query} what="the pipelines" /> : rows.length === 0 ? <Empty>No pipeline has run yet. Start one: forge pipeline run pipeline.yaml</Empty> : (
				<ul class="grid">
					{rows.map((p) => {
						const parts = ORDER.filter((k) => p.counts?.[k]).map((k) => ({ key: k, tone: toneOf(k), value: p.counts![k] }));
						return (
							<li key={p.id} class="card rt">
								<div class="rt-head"><h2><a href={href("pipelines", p.id)}><Name text={p.name} most={60} /></a></h2><Status status={p.state} /></div>
								<Stack parts={parts} label={parts.map((x) => `${x.value} ${x.key}`).join(", ") || "no tasks"} />
								<ul class="legend">{parts.map((x) => <li key={x.key} class={x.tone}><i class="swatch" aria-hidden="true" /><b class="num">{count(x.value)}</b> {x.key}</li>)}</ul>
								<p class="faint small rt-foot"><span>started <Time at={p.started_at} /></span>{p.started_at && p.ended_at && <span>{duration((Date.parse(p.ended_at) - Date.parse(p.started_at)) / 1000)}</span>}</p>
								<p class="faint small mono path">{visible(cut(p.file, 200))}</p>
							</li>
						);
					})}
				</ul>
			)}
		</main>
	);
}

export function PipelinePage({ id }: { id: string }) {
	const query = useQuery<Pipeline>("/api/v1/pipelines/" + encodeURIComponent(id), 2000);
	const p = query.data;
	if (!p)
		return (
			<main id="main" tabIndex={-1}>
				<p class="crumbs"><a href="#/pipelines">Pipelines</a></p>
				<h1><Name text={id} most={60} /></h1>
				<Pending query={query} what="the pipeline" />
			</main>
		);
	const counts = new Map<string, number>();
	for (const t of p.tasks) counts.set(t.state, (counts.get(t.state) ?? 0) + 1);
	const parts = [...ORDER, ...counts.keys()].filter((k, i, a) => counts.get(k) && a.indexOf(k) === i).map((k) => ({ key: k, tone: toneOf(k), value: counts.get(k)! }));
	return (
		<main id="main" tabIndex={-1}>
			<p class="crumbs"><a href="#/pipelines">Pipelines</a> <span aria-hidden="true">/</span> <span class="mono">{visible(p.id)}</span></p>
			<div class="run-head"><div class="run-title"><h1><Name text={p.name} most={60} /></h1><Status status={p.state} /></div></div>
			<Stack parts={parts} label={parts.map((x) => `${x.value} ${x.key}`).join(", ")} />
			<ul class="legend">{parts.map((x) => <li key={x.key} class={x.tone}><i class="swatch" aria-hidden="true" /><b class="num">{count(x.value)}</b> {visible(x.key)}</li>)}</ul>
			<Facts rows={[["File", <Name text={p.file} mono most={160} />], ["Tasks", <span class="num">{count(p.tasks.length)}</span>]]} />
			<Graph tasks={p.tasks} />
			<Gantt tasks={p.tasks} />
			<TaskTable tasks={p.tasks} />
		</main>
	);
}

interface Box { id: string; label: string; state: string; note: string; needs: string[]; link: string | null }

function worst(states: string[]): string {
	return ["failed", "running", "waiting", "skipped", "ran", "cached"].find((s) => states.includes(s)) ?? states[0] ?? "waiting";
}

/* A box a task; of a large pipeline, a box a step. */
function boxes(tasks: Task[]): Box[] {
	if (tasks.length <= MOST_BOXES)
		return tasks.map((t) => ({ id: t.task, label: t.task, state: t.state, needs: t.needs.flatMap((n) => typeof n === "string" ? [n] : tasks.filter((o) => o.step === n.step).map((o) => o.task)),
			note: t.wall_seconds !== null ? duration(t.wall_seconds) : t.state, link: t.run_id ? href("runs", t.run_id) : null }));
	const step = new Map(tasks.map((t) => [t.task, t.step])), groups = new Map<string, Task[]>();
	for (const t of tasks) groups.set(t.step, [...(groups.get(t.step) ?? []), t]);
	return [...groups].map(([name, list]) => ({ id: name, label: name, state: worst(list.map((t) => t.state)), link: null,
		note: `${list.filter((t) => t.state === "ran" || t.state === "cached").length} of ${list.length} done`,
		needs: [...new Set(list.flatMap((t) => t.needs.map((n) => typeof n === "string" ? step.get(n) ?? n : n.step)))].filter((n) => n !== name) }));
}

function Graph({ tasks }: { tasks: Task[] }) {
	const all = useMemo(() => boxes(tasks), [tasks]);
	const shape = all.map((b) => b.id + "<" + b.needs).join("|");
	const plan = useMemo(() => layout(all.map((b) => ({ id: b.id, needs: b.needs }))), [shape]);
	const W = 168, H = 44, GX = 56, GY = 14;
	const width = plan.layers * (W + GX) - GX + 4, height = plan.rows * (H + GY) - GY + 4;
	const at = (id: string) => {
		const n = plan.nodes.get(id)!;
		return { x: 2 + n.layer * (W + GX), y: 2 + n.row * (H + GY) };
	};
	const byId = new Map(all.map((b) => [b.id, b]));
	return (
		<Card title="Graph" extra={all.length < tasks.length ? <span class="faint small">one box a step</span> : undefined}>
			<div class="graph" tabIndex={0} role="region" aria-label="Graph of the tasks; the table below says the same in words">
				<svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={`${all.length} boxes in ${plan.layers} layers`}>
					{plan.edges.map(([a, b]) => {
						const from = at(a), to = at(b), x1 = from.x + W, y1 = from.y + H / 2, x2 = to.x, y2 = to.y + H / 2, mid = Math.min(GX * 0.6, (x2 - x1) / 2);
						return <path key={a + ">" + b} class={"edge " + (byId.get(a)!.state === "running" || byId.get(b)!.state === "running" ? "hot" : "")} d={`M${x1} ${y1}C${x1 + mid} ${y1} ${x2 - mid} ${y2} ${x2} ${y2}`} />;
					})}
					{all.map((b) => {
						const { x, y } = at(b.id);
						const inner = (
							<>
								<title>{visible(`${b.label}: ${b.state}`)}</title>
								<rect class="box" x={x} y={y} width={W} height={H} rx={8} />
								<rect class="mark" x={x} y={y + 8} width={4} height={H - 16} rx={2} />
								<text class="box-name" x={x + 14} y={y + 18}>{visible(cut(b.label, 21))}</text>
								<text class="box-note" x={x + 14} y={y + 34}>{visible(b.state)}{b.note !== b.state ? " · " + visible(b.note) : ""}</text>
							</>
						);
						return b.link ? <a key={b.id} href={b.link} class={"node " + toneOf(b.state)} aria-label={visible(`${b.label}: ${b.state}`)}>{inner}</a>
							: <g key={b.id} class={"node " + toneOf(b.state)}>{inner}</g>;
					})}
				</svg>
			</div>
		</Card>
	);
}

function Gantt({ tasks }: { tasks: Task[] }) {
	const [ref, width] = useWidth();
	const now = useNow();
	const started = tasks.filter((t) => t.started_at).sort((a, b) => a.started_at!.localeCompare(b.started_at!));
	if (started.length === 0) return null;
	const rows = started.slice(-MOST_BARS);
	const begin = Math.min(...rows.map((t) => Date.parse(t.started_at!)));
	const stop = (t: Task) => (t.ended_at ? Date.parse(t.ended_at) : t.state === "running" ? now : Date.parse(t.started_at!) + (t.wall_seconds ?? 0) * 1000);
	const seconds = Math.max(0.1, (Math.max(...rows.map(stop)) - begin) / 1000);
	const left = width < 500 ? 96 : 170, right = 56, H = 22, top = 4;
	const x = (s: number) => left + (s / seconds) * Math.max(1, width - left - right);
	const height = top + rows.length * H + 22;
	return (
		<Card title="When each task ran" extra={rows.length < started.length ? <span class="faint small">the last {rows.length} of {count(started.length)}</span> : <span class="faint small num">{duration(seconds)} in all</span>}>
			<div ref={ref} class="gantt">
				{width > 0 && (
					<svg width={width} height={height} role="img" aria-label={`${rows.length} tasks in ${duration(seconds)}; the table below says when each ran`}>
						{timeTicks(seconds, Math.max(2, Math.floor((width - left) / 100))).map((s) => (
							<g key={s}>
								<line class="gridline" x1={x(s)} x2={x(s)} y1={top} y2={height - 20} />
								<text class="tick" x={x(s)} y={height - 6} text-anchor={s === 0 ? "start" : "middle"}>{duration(s)}</text>
							</g>
						))}
						{rows.map((t, i) => {
							const a = (Date.parse(t.started_at!) - begin) / 1000, b = (stop(t) - begin) / 1000, y = top + i * H;
							return (
								<g key={t.task} class={toneOf(t.state)}>
									<text class="gantt-name" x={left - 8} y={y + 15} text-anchor="end">{visible(cut(t.task, width < 500 ? 13 : 24))}</text>
									<rect class="gantt-bar" x={x(a)} y={y + 4} width={Math.max(3, x(b) - x(a))} height={H - 8} rx={3}><title>{visible(t.task)}: {duration(b - a)}</title></rect>
									<text class="tick" x={x(b) + 6} y={y + 15}>{duration(b - a)}</text>
								</g>
							);
						})}
					</svg>
				)}
			</div>
		</Card>
	);
}

function TaskTable({ tasks }: { tasks: Task[] }) {
	const [all, setAll] = useState(false);
	const shown = tasks.slice(0, all ? 5000 : 100);
	return (
		<Card title="Tasks" extra={<span class="badge num">{count(tasks.length)}</span>}>
			<div class="table-wrap">
				<table class="outputs">
					<caption class="vh">Tasks</caption>
					<thead><tr><th scope="col">Task</th><th scope="col">State</th><th scope="col" class="wide-only">Why</th><th scope="col" class="r">Time</th><th scope="col" class="wide-only">Memory</th></tr></thead>
					<tbody>
						{shown.map((t) => (
							<tr key={t.task}>
								<th scope="row">{t.run_id ? <a href={href("runs", t.run_id)}><Name text={t.task} most={60} /></a> : <Name text={t.task} most={60} />}</th>
								<td><Status status={t.state} /></td>
								<td class="wide-only sentence">{visible(cut(t.why ?? "", 200))}</td>
								<td class="r num nowrap">{duration(t.wall_seconds ?? (t.started_at && t.ended_at ? (Date.parse(t.ended_at) - Date.parse(t.started_at)) / 1000 : null))}</td>
								<td class="wide-only meter-cell">{t.memory_peak_bytes !== null && <Meter label="" used={t.memory_peak_bytes} limit={t.memory_limit_bytes} text={`${bytes(t.memory_peak_bytes)}${t.memory_limit_bytes ? " of " + bytes(t.memory_limit_bytes) : ""}`} isPeak />}</td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
			{tasks.length > 100 && !all && <p class="more"><button type="button" class="link" onClick={() => setAll(true)}>All {count(tasks.length)} tasks</button></p>}
		</Card>
	);
}
