// What a run left: a list by pages, previews as text and pictures, downloads by ticket.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useState } from "preact/hooks";
import { ApiError, Output, request, ticket, useQuery } from "./api";
import { CSV_COLUMNS, numericColumns, parseCsv, Table } from "./csv";
import { bytes, count } from "./format";
import { decodeRange } from "./logwindow";
import { parseNotebook, Part } from "./notebook";
import { visible, visibleLines } from "./text";
import { Card, Digest, Empty, Failure, Icon, Name, Pending } from "./ui";

const TEXT_BYTES = 128 * 1024, CSV_BYTES = 256 * 1024, IMAGE_BYTES = 32 << 20, NOTEBOOK_BYTES = 16 << 20;
const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"];

type Kind = "image" | "csv" | "notebook" | "html" | "text" | null;
export function previewKind(o: Output): Kind {
	const path = o.path.toLowerCase();
	if (IMAGES.includes(o.type)) return o.size <= IMAGE_BYTES ? "image" : null;
	if (path.endsWith(".ipynb")) return o.size <= NOTEBOOK_BYTES ? "notebook" : "text";
	if (o.type.startsWith("text/csv") || /\.(csv|tsv)$/.test(path)) return "csv";
	if (o.type.startsWith("text/html")) return "html";
	if (o.type.startsWith("text/") || o.type === "application/json" || /\.(log|md|txt|json|jsonl|ya?ml|toml|py|r|sh|bed|vcf|fa|fasta|gff3?|sam|tex|xml)$/.test(path)) return "text";
	return null;
}

const content = (id: string, o: Output) => `/api/v1/runs/${id}/outputs/${o.index}/content`;

export function Outputs({ id }: { id: string }) {
	const [after, setAfter] = useState<number[]>([]);
	const from = after[after.length - 1];
	const query = useQuery<{ outputs: Output[]; total: number; next: number | null }>(
		`/api/v1/runs/${id}/outputs?limit=100${from === undefined ? "" : "&after=" + from}`);
	const [open, setOpen] = useState<number | null>(null);
	const [error, setError] = useState<ApiError | null>(null);
	const page = query.data;
	const download = async (o: Output) => {
		setError(null);
		try {
			const a = document.createElement("a");
			a.href = await ticket(content(id, o));
			a.download = o.path.split("/").pop() ?? "output";
			a.click();
		} catch (e) {
			setError(e as ApiError);
		}
	};
	return (
		<Card title="Outputs" extra={page && <span class="badge num">{count(page.total)}</span>}>
			{error && <Failure error={error} />}
			{!page ? <Pending query={query} what="the outputs" /> : page.outputs.length === 0 ? <Empty>This run left no output.</Empty> : (
				<div class="table-wrap">
					<table class="outputs">
						<caption class="vh">Files that the run left</caption>
						<thead><tr><th scope="col">File</th><th scope="col" class="r">Size</th><th scope="col" class="wide-only">SHA-256</th><th scope="col"><span class="vh">Actions</span></th></tr></thead>
						{page.outputs.map((o) => {
							const kind = previewKind(o), isOpen = open === o.index;
							return (
								<tbody key={o.index}>
									<tr>
										<th scope="row" class="path">
											{kind && !o.damaged ? (
												<button type="button" class="link" aria-expanded={isOpen} onClick={() => setOpen(isOpen ? null : o.index)}><Name text={o.path} most={160} mono /></button>
											) : <Name text={o.path} most={160} mono />}
											{o.damaged && <span class="status t-corrupted"> damaged in the store</span>}
										</th>
										<td class="r num nowrap">{bytes(o.size)}</td>
										<td class="wide-only"><Digest value={o.sha256} /></td>
										<td class="r nowrap">
											<button type="button" class="ghost" onClick={() => download(o)} aria-label={`Download ${visible(o.path)}`} title="Download"><Icon name="download" size={14} /></button>
										</td>
									</tr>
									{isOpen && <tr><td colSpan={4} class="preview-cell"><Preview id={id} output={o} kind={kind!} /></td></tr>}
								</tbody>
							);
						})}
					</table>
					{(after.length > 0 || page.next !== null) && (
						<nav class="pager" aria-label="Pages of outputs">
							{after.length > 0 && <button type="button" onClick={() => setAfter(after.slice(0, -1))}>← Before</button>}
							<span class="grow faint small">{count(page.total)} files</span>
							{page.next !== null && <button type="button" onClick={() => setAfter([...after, page.next!])}>Next →</button>}
						</nav>
					)}
				</div>
			)}
		</Card>
	);
}

async function readBytes(id: string, o: Output, most: number): Promise<Uint8Array> {
	const init = o.size > most ? { headers: { Range: `bytes=0-${most - 1}` } } : {};
	const answer = await request(content(id, o), init);
	return new Uint8Array(await answer.arrayBuffer()).subarray(0, most);
}

function useLoaded<T>(load: () => Promise<T>, key: string): { value: T | null; error: Error | null } {
	const [r, set] = useState<{ key: string; value: T | null; error: Error | null }>({ key: "", value: null, error: null });
	useEffect(() => {
		let isOver = false;
		load().then((value) => isOver || set({ key, value, error: null }), (error) => isOver || set({ key, value: null, error }));
		return () => void (isOver = true);
	}, [key]);
	return r.key === key ? r : { value: null, error: null };
}

function Preview({ id, output, kind }: { id: string; output: Output; kind: NonNullable<Kind> }) {
	switch (kind) {
	case "image": return <ImagePreview id={id} output={output} />;
	case "csv": return <CsvPreview id={id} output={output} />;
	case "notebook": return <NotebookPreview id={id} output={output} />;
	case "html": return <HtmlPreview id={id} output={output} />;
	default: return <TextPreview id={id} output={output} />;
	}
}

function Waiting({ error }: { error: Error | null }) {
	return error ? <p class="failure" role="alert">{visible(error.message)}</p> : <p class="faint" role="status">Reading …</p>;
}

/* In <img> neither scripts nor links of an SVG work, and nothing is loaded from elsewhere. */
function ImagePreview({ id, output }: { id: string; output: Output }) {
	const { value, error } = useLoaded(async () => URL.createObjectURL(new Blob([await readBytes(id, output, IMAGE_BYTES) as BlobPart], { type: output.type })), id + output.index);
	const [broken, setBroken] = useState(false);
	useEffect(() => () => void (value && URL.revokeObjectURL(value)), [value]);
	if (broken) return <p class="faint">This file is not a picture that can be shown.</p>;
	return value ? <img class="picture" src={value} alt={visible(output.path)} onError={() => setBroken(true)} /> : <Waiting error={error} />;
}

function CsvPreview({ id, output }: { id: string; output: Output }) {
	const { value, error } = useLoaded(async () => parseCsv(decodeRange(await readBytes(id, output, CSV_BYTES), true).text.replace(/^\ufeff/, ""), output.size <= CSV_BYTES), id + output.index);
	if (!value) return <Waiting error={error} />;
	return <CsvTable table={value} />;
}

function CsvTable({ table }: { table: Table }) {
	const [head, ...body] = table.rows;
	if (!head) return <Empty>The file is empty.</Empty>;
	const numeric = numericColumns(table.rows);
	return (
		<>
			<div class="csv" tabIndex={0} role="region" aria-label="First rows">
				<table>
					<thead><tr>{head.map((c, i) => <th scope="col" key={i} class={numeric[i] ? "r" : ""}>{c}</th>)}</tr></thead>
					<tbody>{body.map((r, i) => <tr key={i}>{r.map((c, k) => <td key={k} class={numeric[k] ? "r num" : ""}>{c}</td>)}</tr>)}</tbody>
				</table>
			</div>
			{(table.truncated || table.columns > CSV_COLUMNS) && <p class="faint small">The first {count(body.length)} rows{table.columns > CSV_COLUMNS ? ` and ${CSV_COLUMNS} of ${count(table.columns)} columns` : ""}. Download the file to see all of it.</p>}
		</>
	);
}

function TextPreview({ id, output }: { id: string; output: Output }) {
	const { value, error } = useLoaded(async () => visibleLines(decodeRange(await readBytes(id, output, TEXT_BYTES), true).text), id + output.index);
	if (value === null) return <Waiting error={error} />;
	return (
		<>
			<pre class="text" tabIndex={0}>{value}</pre>
			{output.size > TEXT_BYTES && <p class="faint small">The first {bytes(TEXT_BYTES)} of {bytes(output.size)}.</p>}
		</>
	);
}

/* Source first. The frame has no scripts, no origin and no network: the sandbox attribute and the server's policy say so twice. */
function HtmlPreview({ id, output }: { id: string; output: Output }) {
	const [url, setUrl] = useState<string | null>(null);
	const [error, setError] = useState<Error | null>(null);
	const show = async () => {
		try {
			setUrl(await ticket(content(id, output) + "?preview=1"));
		} catch (e) {
			setError(e as Error);
		}
	};
	return (
		<>
			<p>
				{url ? <button type="button" onClick={() => setUrl(null)}>Show the source</button>
					: <button type="button" onClick={show}>Show the page, without scripts, in a sealed frame</button>}
			</p>
			{error && <Waiting error={error} />}
			{url ? <iframe class="sealed" sandbox="" src={url} title={`Page ${visible(output.path)}, sealed`} referrerpolicy="no-referrer" /> : <TextPreview id={id} output={output} />}
		</>
	);
}

function NotebookPreview({ id, output }: { id: string; output: Output }) {
	const { value, error } = useLoaded(async () => parseNotebook(decodeRange(await readBytes(id, output, NOTEBOOK_BYTES), true).text), id + output.index);
	if (!value) return <Waiting error={error} />;
	return <div class="notebook">{value.map((p, i) => <Cell key={i} part={p} />)}</div>;
}

function Cell({ part }: { part: Part }) {
	if (part.kind === "image") return <img class="picture" src={`data:${part.type};base64,${part.base64}`} alt={part.alt || "A picture of the notebook"} />;
	if (part.kind === "note") return <p class="faint small">{part.text}</p>;
	return (
		<div class={"cell " + part.kind}>
			{part.kind === "code" && <span class="prompt mono" aria-hidden="true">[{part.count ?? " "}]</span>}
			<pre class="text">{part.text}</pre>
		</div>
	);
}

