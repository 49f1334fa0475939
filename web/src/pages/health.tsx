// The checks of this host over time.
// SPDX-License-Identifier: Apache-2.0
import { HealthRow, useQuery } from "../api";
import { count, duration } from "../format";
import { href } from "../router";
import { visible } from "../text";
import { Empty, HealthStrip, Name, Pending, Status, Time } from "../ui";

export function HealthPage() {
	const query = useQuery<{ checks: HealthRow[] }>("/api/v1/health", 10000);
	const rows = query.data?.checks;
	return (
		<main id="main" tabIndex={-1}>
			<div class="page-head"><h1>Health</h1><p class="faint sub">Checks of this host before and after runs; the oldest is on the left.</p></div>
			{!rows ? <Pending query={query} what="the health of this host" /> : rows.length === 0 ? <Empty>No check of this host has been recorded. A run records them, or: forge health check</Empty> : (
				<ul class="health-list">
					{rows.map((h) => (
						<li key={h.name} class="card health-card">
							<div class="health-top">
								<h2><Name text={h.name} most={60} /></h2>
								<span class="faint small">{visible(h.kind)}</span>
								<span class="right">{h.failed ? <Status status="unhealthy" /> : h.checks ? <Status status="healthy" /> : <Status status="unchecked" />}</span>
							</div>
							<HealthStrip row={h} />
							<p class="health-facts small num">
								<span>{count(h.checks)} checks</span>
								<span class={h.failed ? "t-failed" : ""}>{count(h.failed)} failed</span>
								<span>mean {duration(h.mean_seconds)}</span>
								<span>slowest {duration(h.slowest_seconds)}</span>
							</p>
							{h.last_failed && (
								<p class="sentence">
									<span class="t-failed">Failed <Time at={h.last_failed} />:</span> {visible(h.problem ?? "")}{" "}
									{h.run_id && <a href={href("runs", h.run_id)}>the run</a>}
								</p>
							)}
						</li>
					))}
				</ul>
			)}
		</main>
	);
}
