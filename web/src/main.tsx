// The frame around the pages: navigation, banner, token, keys, theme.
// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { noteOverview, Overview, setToken, startToken, useApiState, useQuery } from "./api";
import { HealthPage } from "./pages/health";
import { OverviewPage } from "./pages/overview";
import { PipelinePage, PipelinesPage } from "./pages/pipelines";
import { RunPage } from "./pages/run";
import { RunsPage } from "./pages/runs";
import { RuntimePage, RuntimesPage } from "./pages/runtimes";
import { parseRoute, useRoute } from "./router";
import { visible } from "./text";
import { Dialog, Icon } from "./ui";

const PAGES: [string, string, string, string][] = [
	["", "Overview", "overview", "o"], ["runs", "Runs", "runs", "r"], ["pipelines", "Pipelines", "pipelines", "p"],
	["runtimes", "Runtimes", "runtimes", "t"], ["health", "Health", "health", "h"],
];

/* ---- theme ---- */

type Theme = "auto" | "light" | "dark";
function storedTheme(): Theme {
	try {
		const t = localStorage.getItem("forge-theme");
		return t === "light" || t === "dark" ? t : "auto";
	} catch {
		return "auto";
	}
}
function applyTheme(t: Theme): void {
	if (t === "auto") delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = t;
	try {
		localStorage.setItem("forge-theme", t);
	} catch {
		/* a browser that keeps nothing: it lasts as long as this page */
	}
}

function ThemeSwitch() {
	const [theme, set] = useState(storedTheme);
	const next: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
	return (
		<button type="button" class="ghost" onClick={() => (applyTheme(next[theme]), set(next[theme]))}
			aria-label={`Theme: ${theme === "auto" ? "as the system" : theme}. Change`} title={`Theme: ${theme === "auto" ? "as the system" : theme}`}>
			<Icon name={theme === "auto" ? "auto" : theme === "light" ? "sun" : "moon"} />
		</button>
	);
}

/* ---- frame ---- */

function Banner() {
	const s = useApiState();
	const text = s.connection === "store_away" ? s.message || "The store cannot be reached."
		: s.connection === "gone" ? "The server does not answer."
		: s.connection === "busy" ? s.message || "The server is busy."
		: "";
	return (
		<div role="status" aria-live="polite">
			{text && <p class="banner"><Icon name="corrupted" /><span><strong>{visible(text)}</strong> What you see is the last that was read. This page tries again by itself.</span></p>}
		</div>
	);
}

function TokenPrompt({ isBad, message }: { isBad: boolean; message: string }) {
	const input = useRef<HTMLInputElement>(null);
	const h1 = useRef<HTMLHeadingElement>(null);
	const [text, setText] = useState("");
	useEffect(() => input.current?.focus(), []);
	return (
		<main class="gate" id="main">
			<div class="card gate-card">
				<Logo size={40} />
				<h1 ref={h1}>Forge</h1>
				<p>{isBad ? <span role="alert" class="t-failed">{visible(message || "This token is not accepted.")}</span> : "This page needs a token."}</p>
				<p class="faint small">Open the link that <code>forge serve</code> printed, or paste its token. Make another one: <code>forge token new</code></p>
				<form onSubmit={(e) => {
					e.preventDefault();
					const m = /token=([^&\s]+)/.exec(text);
					const given = (m ? m[1] : text).trim();
					if (given) setToken(given);
				}}>
					<label>
						<span class="vh">Token</span>
						<input ref={input} type="password" value={text} placeholder="token" autocomplete="off" spellcheck={false} onInput={(e) => setText(e.currentTarget.value)} />
					</label>
					<button type="submit" class="primary">Open</button>
				</form>
			</div>
		</main>
	);
}

function Logo({ size }: { size: number }) {
	return (
		<svg class="logo" viewBox="0 0 32 32" width={size} height={size} aria-hidden="true">
			<rect width="32" height="32" rx="8" class="logo-back" />
			<path d="M7 11h18l-3 4.500h-4v3.500l3.500 4.500h-11l3.500-4.500v-3.500c-3.500 0-6-1.800-7-4.500z" class="logo-front" />
		</svg>
	);
}

const KEYS: [string, string][] = [
	["/", "search on this page, or among the runs"], ["?", "these keys"], ["g o", "overview"], ["g r", "runs"], ["g p", "pipelines"],
	["g t", "runtimes"], ["g h", "health"], ["j  k", "next and previous run in a list"], ["Enter", "open it; in the log search: next match"], ["Esc", "close, or leave the search"],
];

function KeyHelp({ onClose }: { onClose: () => void }) {
	return (
		<Dialog title="Keys" onClose={onClose}>
			<dl class="keys">{KEYS.map(([k, what]) => <div key={k}><dt>{k.split(" ").filter(Boolean).map((x) => <kbd key={x}>{x}</kbd>)}</dt><dd>{what}</dd></div>)}</dl>
		</Dialog>
	);
}

/* The next page that is shown puts the focus into its search. */
let wantsSearch = false;

function moveRow(step: number): void {
	const rows = [...document.querySelectorAll<HTMLElement>("[data-row] th a")];
	if (rows.length === 0) return;
	const at = rows.indexOf(document.activeElement as HTMLElement);
	rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))].focus();
}

function useKeys(onHelp: () => void): void {
	useEffect(() => {
		let isGo = 0;
		const pressed = (e: KeyboardEvent) => {
			const target = e.target as HTMLElement;
			const types = target.closest("input,textarea,select,[contenteditable]");
			if (e.key === "Escape" && types) return void (target as HTMLInputElement).blur();
			if (types || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
			if (isGo && Date.now() - isGo < 1500) {
				isGo = 0;
				const page = PAGES.find(([, , , k]) => k === e.key);
				if (page) {
					e.preventDefault();
					location.hash = "#/" + page[0];
					return;
				}
			}
			if (e.key === "g") isGo = Date.now();
			else if (e.key === "?") {
				e.preventDefault();
				onHelp();
			} else if (e.key === "/") {
				e.preventDefault();
				const box = document.querySelector<HTMLInputElement>("[data-search]");
				if (box) box.focus();
				else {
					wantsSearch = true;
					location.hash = "#/runs";
				}
			} else if (e.key === "j" || e.key === "k") {
				e.preventDefault();
				moveRow(e.key === "j" ? 1 : -1);
			}
		};
		addEventListener("keydown", pressed);
		return () => removeEventListener("keydown", pressed);
	}, []);
}

/* What the frame needs to know on every page: who we are to this server. */
function Access() {
	const query = useQuery<Overview>("/api/v1/overview", 30000);
	useEffect(() => {
		if (query.data) noteOverview(query.data);
	}, [query.data]);
	return null;
}

function App() {
	const route = useRoute();
	const s = useApiState();
	const [help, setHelp] = useState(false);
	useKeys(() => setHelp(true));
	const [page = "", id] = route.parts;
	const known = PAGES.find(([p]) => p === page);
	const first = useRef(true);
	useEffect(() => {
		if (!id) document.title = (known?.[1] ?? "Not found") + " · Forge";
		if (wantsSearch) {
			wantsSearch = false;
			document.querySelector<HTMLInputElement>("[data-search]")?.focus();
			first.current = false;
			return;
		}
		/* A screen reader goes on at the new page; the first one is where it is anyway. */
		if (first.current) first.current = false;
		else {
			scrollTo(0, 0);
			document.getElementById("main")?.focus({ preventScroll: true });
		}
	}, [page, id]);
	if (s.connection === "no_token" || s.connection === "bad_token")
		return <TokenPrompt key={s.connection} isBad={s.connection === "bad_token"} message={s.message} />;
	return (
		<>
			<a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>To the content</a>
			<header class="top">
				<a href="#/" class="brand" aria-label="Forge, overview"><Logo size={24} /><span>Forge</span></a>
				<nav aria-label="Pages" class="nav">
					{PAGES.map(([p, title, icon]) => (
						<a key={p} href={"#/" + p} aria-current={p === page ? "page" : undefined}><Icon name={icon} /><span>{title}</span></a>
					))}
				</nav>
				<div class="top-right">
					{s.host && <span class="faint small host">{visible(s.host)}{s.access === "read" ? " · read only" : ""}</span>}
					<button type="button" class="ghost" onClick={() => setHelp(true)} aria-label="Keys" title="Keys (?)"><Icon name="keys" /></button>
					<ThemeSwitch />
				</div>
			</header>
			<Banner />
			{page !== "" && <Access />}
			{page === "" ? <OverviewPage />
				: page === "runs" ? (id ? <RunPage key={id} id={id} /> : <RunsPage route={route} />)
				: page === "runtimes" ? (id ? <RuntimePage key={id} name={id} /> : <RuntimesPage />)
				: page === "pipelines" ? (id ? <PipelinePage key={id} id={id} /> : <PipelinesPage />)
				: page === "health" ? <HealthPage />
				: <main id="main" tabIndex={-1}><h1>Not found</h1><p>There is no page of this name. <a href="#/">Overview</a></p></main>}
			{help && <KeyHelp onClose={() => setHelp(false)} />}
		</>
	);
}

applyTheme(storedTheme());
startToken();
if (!location.hash || !parseRoute(location.hash)) history.replaceState(null, "", "#/");
render(<App />, document.getElementById("app")!);
