// A layered layout: every task stands right of what it needs.
// SPDX-License-Identifier: Apache-2.0

export interface Node { id: string; needs: string[] }
export interface Placed { id: string; layer: number; row: number }
export interface Layout { nodes: Map<string, Placed>; layers: number; rows: number; edges: [string, string][] }

export function layout(tasks: Node[]): Layout {
	const byId = new Map(tasks.map((t) => [t.id, t]));
	const edges: [string, string][] = [];
	const next = new Map<string, string[]>(), open = new Map<string, number>(), depth = new Map<string, number>();
	for (const t of tasks) {
		const needs = [...new Set(t.needs)].filter((n) => n !== t.id && byId.has(n));
		open.set(t.id, needs.length);
		for (const n of needs) {
			edges.push([n, t.id]);
			next.set(n, [...(next.get(n) ?? []), t.id]);
		}
	}
	/* Kahn's order; what is on a cycle (no valid pipeline has one) stays in layer 0. */
	const ready = tasks.filter((t) => open.get(t.id) === 0).map((t) => t.id);
	for (let i = 0; i < ready.length; i++) {
		const id = ready[i], d = depth.get(id) ?? 0;
		depth.set(id, d);
		for (const n of next.get(id) ?? []) {
			depth.set(n, Math.max(depth.get(n) ?? 0, d + 1));
			open.set(n, open.get(n)! - 1);
			if (open.get(n) === 0)
				ready.push(n);
		}
	}
	const layers: string[][] = [];
	for (const t of tasks) {
		const d = open.get(t.id) === 0 ? depth.get(t.id)! : 0;
		(layers[d] ??= []).push(t.id);
	}
	for (let i = 0; i < layers.length; i++)
		layers[i] ??= [];
	/* Few crossings: each task goes to the mean place of its neighbours, forth and back. */
	const place = new Map<string, number>();
	const number = (ids: string[]) => ids.forEach((id, i) => place.set(id, i - (ids.length - 1) / 2));
	layers.forEach(number);
	const before = new Map<string, string[]>();
	for (const [a, b] of edges)
		before.set(b, [...(before.get(b) ?? []), a]);
	const sweep = (ids: string[], near: Map<string, string[]>) => {
		const mean = new Map(ids.map((id) => {
			const n = near.get(id) ?? [];
			return [id, n.length ? n.reduce((s, x) => s + place.get(x)!, 0) / n.length : place.get(id)!];
		}));
		ids.sort((a, b) => mean.get(a)! - mean.get(b)!);
		number(ids);
	};
	for (let k = 0; k < 4; k++) {
		for (const ids of layers) sweep(ids, before);
		for (const ids of [...layers].reverse()) sweep(ids, next);
	}
	for (const ids of layers) sweep(ids, before);
	const rows = Math.max(1, ...layers.map((l) => l.length));
	const nodes = new Map<string, Placed>();
	layers.forEach((ids, l) => ids.forEach((id, r) => nodes.set(id, { id, layer: l, row: r + (rows - ids.length) / 2 })));
	return { nodes, layers: layers.length, rows, edges };
}
