// Named environments: are they healthy, what is in them, when did they change.
// SPDX-License-Identifier: Apache-2.0
import { useState } from "preact/hooks";
import { Drift, Executor, Runtime, useQuery } from "../api";
import { count } from "../format";
import { href } from "../router";
import { cut, visible } from "../text";
import { Card, Digest, Empty, Facts, Icon, Name, Pending, Status, Time } from "../ui";

export function RuntimesPage() {
	const query = useQuery<{ runtimes: Runtime[] }>("/api/v1/runtimes", 15000);
	const executors = useQuery<{ executors: Executor[] }>("/api/v1/executors", 0);
	return (
		<main id="main" tabIndex={-1}>
			<div class="page-head"><h1>Runtimes</h1></div>
			{!query.data ? <Pending query={query} what="the runtimes" /> : query.data.runtimes.length === 0 ? <Empty>No runtime is declared.</Empty> : (
				<ul class="grid">
					{query.data.runtimes.map((r) => (
						<li key={r.name} class="card rt">
							<div class="rt-head">
								<h2><a href={href("runtimes", r.name)}><Name text={r.name} most={60} /></a></h2>
								<Status status={r.health} />
							</div>
							<p class="rt-what">{visible(r.description ?? "")}</p>
							{r.problem && <p class="t-failed small">{visible(cut(r.problem, 400))}</p>}
							<Versions versions={r.versions} most={6} />
							<p class="faint small rt-foot"><span>{visible(r.kind)}</span><Digest value={r.digest} /><span>{r.checked_at ? <>checked <Time at={r.checked_at} /></> : "never checked"}</span></p>
						</li>
					))}
				</ul>
			)}
			{executors.data && (
				<Card title="Executors">
					<ul class="rows">
						{executors.data.executors.map((e) => (
							<li key={e.name} class="fail-row">
								<Status status={e.reachable ? "healthy" : "unchecked"} label={e.reachable ? "reachable" : "not reachable"} compact />
								<Name text={e.name} most={40} />
								<span class="faint small right">{visible(e.kind)}</span>
								<span class="sentence">{visible(cut(e.what, 400))}{!e.reachable && e.hint ? ". " + visible(cut(e.hint, 400)) : ""}</span>
							</li>
						))}
					</ul>
				</Card>
			)}
		</main>
	);
}

function Versions({ versions, most }: { versions: Record<string, string> | null; most: number }) {
	const all = Object.entries(versions ?? {});
	if (all.length === 0) return null;
	return (
		<ul class="chips">
			{all.slice(0, most).map(([k, v]) => <li key={k}><b>{visible(cut(k, 40))}</b> {visible(cut(String(v).replace(new RegExp("^" + k.replace(/[^A-Za-z0-9]/g, ".") + "\\s+", "i"), "").replace(/^Python /, ""), 40))}</li>)}
			{all.length > most && <li class="faint">+{all.length - most}</li>}
		</ul>
	);
}

export function RuntimePage({ name }: { name: string }) {
	const query = useQuery<{ runtime: Runtime; history: Drift[] | Drift | null }>("/api/v1/runtimes/" + encodeURIComponent(name), 15000);
	const [find, setFind] = useState("");
	const r = query.data?.runtime, h = query.data?.history;
	const history = Array.isArray(h) ? h : h ? [h] : [];
	if (!r)
		return (
			<main id="main" tabIndex={-1}>
				<p class="crumbs"><a href="#/runtimes">Runtimes</a></p>
				<h1><Name text={name} most={60} /></h1>
				<Pending query={query} what="the runtime" />
			</main>
		);
	const packages = (r.packages ?? []).filter((p) => p.name.toLowerCase().includes(find.toLowerCase()));
	return (
		<main id="main" tabIndex={-1}>
			<p class="crumbs"><a href="#/runtimes">Runtimes</a></p>
			<div class="run-head">
				<div class="run-title"><h1><Name text={r.name} most={60} /></h1><Status status={r.health} /></div>
				<div class="actions"><a class="button" href={"#/runs?runtime=" + encodeURIComponent(r.name)}>Its runs</a></div>
			</div>
			<p class={"verdict" + (r.problem ? " bad t-failed" : "")}>{visible(r.problem || r.description || "")}</p>
			<Facts rows={[
				["Kind", visible(r.kind)],
				["Digest", <Digest value={r.digest} />],
				["Checked", r.checked_at ? <Time at={r.checked_at} /> : "never"],
				...(r.prefix ? [["Prefix", <Name text={r.prefix} mono />] as [string, preact.ComponentChildren]] : []),
				["Declared in", <Name text={(r.declared_in ?? "–") + (r.line ? ":" + r.line : "")} mono most={120} />],
			]} />
			<div class="columns">
				<div class="col">
					<Card title="Versions">
						{Object.keys(r.versions ?? {}).length === 0 ? <Empty>Not known before the first check: forge runtime check {visible(r.name)}</Empty> : <div class="pad"><Versions versions={r.versions} most={200} /></div>}
					</Card>
					<Card title="Drift" extra={<span class="faint small">{history.length === 1 ? "one digest, no change" : `${history.length} digests`}</span>}>
						{history.length === 0 && <Empty>It has not been checked or used yet.</Empty>}
						<ol class="drift">
							{history.map((d, i) => (
								<li key={d.digest} class={i === 0 ? "now" : ""}>
									<span class="dot-mark" aria-hidden="true" />
									<div>
										<p class="line"><Digest value={d.digest} />{i === 0 && <span class="badge">now</span>}</p>
										<p class="faint small"><Time at={d.first} /> to <Time at={d.last} /> · {count(d.runs)} runs · {count(d.checks?.length)} checks</p>
										<Changes now={d} before={history[i + 1]} />
										<ul class="checks">
											{(d.checks ?? []).slice(0, 8).map((c, k) => (
												<li key={k}><Status status={c.verdict} compact /> <span class="faint small"><Time at={c.time} /></span>{c.problem && <span class="small t-failed"> {visible(cut(c.problem, 300))}</span>}</li>
											))}
										</ul>
									</div>
								</li>
							))}
						</ol>
					</Card>
				</div>
				<div class="col">
					{(r.packages?.length ?? 0) > 0 && (
						<Card title="Packages" extra={<><label class="field search"><span class="vh">Search packages</span><Icon name="search" size={13} /><input type="search" data-search placeholder="search" value={find} onInput={(e) => setFind(e.currentTarget.value)} /></label><span class="badge num">{count(packages.length)}</span></>}>
							<div class="csv tall" tabIndex={0} role="region" aria-label="List of packages">
								<table>
									<thead><tr><th scope="col">Package</th><th scope="col">Version</th><th scope="col">Source</th></tr></thead>
									<tbody>{packages.slice(0, 500).map((p, i) => <tr key={i}><td>{visible(p.name)}</td><td>{visible(p.version)}</td><td>{visible(p.source)}</td></tr>)}</tbody>
								</table>
							</div>
						</Card>
					)}
				</div>
			</div>
		</main>
	);
}

/* Which versions are not what they were under the digest before. */
function Changes({ now, before }: { now: Drift; before?: Drift }) {
	const a = before?.checks?.find((c) => c.versions)?.versions, b = now.checks?.find((c) => c.versions)?.versions;
	if (!a || !b) return null;
	const changed = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((k) => a[k] !== b[k]);
	if (changed.length === 0) return <p class="small">Another digest, the same versions.</p>;
	return <ul class="small changes">{changed.slice(0, 30).map((k) => <li key={k}><b>{visible(k)}</b> <del>{visible(a[k] ?? "absent")}</del> → <ins>{visible(b[k] ?? "absent")}</ins></li>)}</ul>;
}
