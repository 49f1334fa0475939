// Charts drawn by hand: SVG, each with a sentence for those who cannot see it.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useRef, useState } from "preact/hooks";
import { bytes, cpus, duration, ticks, timeTicks } from "./format";

export function useWidth(): [preact.RefObject<HTMLDivElement>, number] {
	const ref = useRef<HTMLDivElement>(null);
	const [width, set] = useState(0);
	useEffect(() => {
		if (!ref.current) return;
		const watch = new ResizeObserver((e) => set(Math.floor(e[0].contentRect.width)));
		watch.observe(ref.current);
		return () => watch.disconnect();
	}, []);
	return [ref, width];
}

export type Point = [number, number | null];

/* At most n points: of each part of the time its highest value, so that no peak is lost. */
export function thinned(points: Point[], n: number): Point[] {
	if (points.length <= n) return points;
	const out: Point[] = [], size = points.length / n;
	for (let i = 0; i < n; i++) {
		let best = points[Math.floor(i * size)];
		for (let k = Math.floor(i * size); k < Math.floor((i + 1) * size); k++)
			if (points[k][1] !== null && (best[1] === null || points[k][1]! > best[1]!)) best = points[k];
		out.push(best);
	}
	return out;
}

function path(points: Point[], x: (s: number) => number, y: (v: number) => number): { line: string; area: string } {
	let line = "", area = "", first: number | null = null, last = 0;
	for (const [s, v] of points) {
		if (v === null) {
			if (first !== null) area += `L${last} ${y(0)}L${first} ${y(0)}Z`;
			first = null;
			continue;
		}
		const at = `${x(s).toFixed(1)} ${y(v).toFixed(1)}`;
		last = Number(x(s).toFixed(1));
		line += (first === null ? "M" : "L") + at;
		area += (first === null ? "M" : "L") + at;
		first ??= last;
	}
	if (first !== null) area += `L${last} ${y(0)}L${first} ${y(0)}Z`;
	return { line, area };
}

interface ChartProps {
	title: string; points: Point[]; limit: number | null; unit: "bytes" | "cpus" | "count"; seconds: number; tone: string;
	hover: number | null; onHover: (s: number | null) => void; height?: number;
}

export function Chart({ title, points, limit, unit, seconds, tone, hover, onHover, height = 132 }: ChartProps) {
	const [ref, width] = useWidth();
	const say = unit === "bytes" ? bytes : unit === "cpus" ? cpus : (n: number) => String(n);
	const known = points.filter((p) => p[1] !== null) as [number, number][];
	const peak = Math.max(0, ...known.map((p) => p[1]));
	const showsLimit = limit !== null && limit <= peak * 4;
	/* Never so fine that steps would all be called the same. */
	const least = unit === "bytes" ? 4096 : unit === "cpus" ? 0.04 : 4;
	const scale = ticks(Math.max(showsLimit ? limit! * 1.04 : 0, peak * 1.08, least), 4, unit === "bytes" ? 2 : 10);
	const top = scale[scale.length - 1], left = 58, right = 10, up = 8, down = 20;
	const x = (s: number) => left + (seconds > 0 ? s / seconds : 0) * Math.max(1, width - left - right);
	const y = (v: number) => up + (1 - v / top) * (height - up - down);
	const drawn = thinned(points, Math.max(100, width));
	const { line, area } = path(drawn, x, y);
	let near: [number, number] | null = null;
	if (hover !== null)
		for (const p of known) if (!near || Math.abs(p[0] - hover) < Math.abs(near[0] - hover)) near = p;
	const last = known[known.length - 1];
	const text = known.length === 0 ? `${title}: no samples.`
		: `${title} over ${duration(seconds)}: highest ${say(peak)}${limit !== null ? ` of ${say(limit)} allowed` : ""}, last ${say(last[1])}.`;
	return (
		<figure class={"chart " + tone}>
			<figcaption>
				<span class="chart-title">{title}</span>
				<span class="num chart-now">{near ? `${say(near[1])} at ${duration(near[0])}` : known.length ? `highest ${say(peak)}` : "no samples"}</span>
				{limit !== null && <span class="faint num">limit {say(limit)}{!showsLimit && known.length > 0 ? " (above this chart)" : ""}</span>}
			</figcaption>
			<div ref={ref}>
				{width > 0 && (
					<svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={text}
						onPointerMove={(e) => {
							const box = e.currentTarget.getBoundingClientRect();
							onHover(Math.max(0, Math.min(seconds, ((e.clientX - box.left - left) / Math.max(1, width - left - right)) * seconds)));
						}}
						onPointerLeave={() => onHover(null)}>
						{scale.map((v) => (
							<g key={v}>
								<line class="gridline" x1={left} x2={width - right} y1={y(v)} y2={y(v)} />
								<text class="tick" x={left - 6} y={y(v) + 3.5} text-anchor="end">{v === 0 ? "0" : say(v).replace(/\.0+ /, " ").replace(/(\.\d)0 /, "$1 ")}</text>
							</g>
						))}
						{timeTicks(seconds, Math.max(2, Math.floor(width / 90))).map((s, i, all) => (
							<text key={s} class="tick" x={x(s)} y={height - 5} text-anchor={i === 0 ? "start" : i === all.length - 1 && x(s) > width - 40 ? "end" : "middle"}>{duration(s)}</text>
						))}
						<path class="area" d={area} />
						<path class="line" d={line} />
						{known.length === 1 && <circle class="dot" cx={x(known[0][0])} cy={y(known[0][1])} r={3} />}
						{showsLimit && <line class="limit" x1={left} x2={width - right} y1={y(limit!)} y2={y(limit!)} />}
						{showsLimit && <text class="limit-label" x={width - right} y={y(limit!) > up + 14 ? y(limit!) - 4 : y(limit!) + 12} text-anchor="end">limit</text>}
						{near && <line class="cross" x1={x(near[0])} x2={x(near[0])} y1={up} y2={height - down} />}
						{near && <circle class="dot" cx={x(near[0])} cy={y(near[1])} r={3.5} />}
					</svg>
				)}
			</div>
		</figure>
	);
}

export function Sparkline({ values, top, label }: { values: (number | null)[]; top: number; label: string }) {
	const w = 120, h = 28, points = values.map((v, i) => [i, v] as Point);
	const { line, area } = path(points, (i) => w - (values.length - 1 - i) * (w / 59), (v) => h - 1 - (top > 0 ? Math.min(1, v / top) : 0) * (h - 3));
	return (
		<svg class="spark" viewBox={`0 0 ${w} ${h}`} preserveAspectRatio="none" role="img" aria-label={label}>
			<path class="area" d={area} />
			<path class="line" d={line} />
		</svg>
	);
}

/* Parts of a whole: how runs of the last day ended. */
export function Stack({ parts, label }: { parts: { key: string; tone: string; value: number }[]; label: string }) {
	const total = parts.reduce((n, p) => n + p.value, 0);
	return (
		<div class="stack" role="img" aria-label={label}>
			{parts.filter((p) => p.value > 0).map((p) => (
				<span key={p.key} class={p.tone} title={`${p.value} ${p.key}`} style={{ flexGrow: String(Math.max(p.value / total, 0.012)) }} />
			))}
		</div>
	);
}
