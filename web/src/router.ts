// Routes in the fragment: #/runs?status=killed, #/runs/ID.
// SPDX-License-Identifier: Apache-2.0
import { useEffect, useState } from "preact/hooks";
import { takeTokenFromAddress } from "./api";

export interface Route { parts: string[]; query: URLSearchParams }

export function parseRoute(hash: string): Route {
	const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
	const parts = path.split("/").filter((p) => p !== "").map((p) => {
		try {
			return decodeURIComponent(p);
		} catch {
			return p;
		}
	});
	return { parts, query: new URLSearchParams(query) };
}

export function useRoute(): Route {
	const [route, set] = useState(() => parseRoute(location.hash));
	useEffect(() => {
		const moved = () => {
			takeTokenFromAddress();
			set(parseRoute(location.hash));
		};
		addEventListener("hashchange", moved);
		return () => removeEventListener("hashchange", moved);
	}, []);
	return route;
}

export const href = (...parts: string[]): string => "#/" + parts.map(encodeURIComponent).join("/");

/* The same page with other parameters: not a step in the history unless asked. */
export function setQuery(query: URLSearchParams, isStep = false): void {
	const text = query.toString();
	const hash = location.hash.split("?", 1)[0] + (text ? "?" + text : "");
	if (hash === location.hash) return;
	if (isStep) location.hash = hash;
	else {
		history.replaceState(null, "", hash);
		dispatchEvent(new HashChangeEvent("hashchange"));
	}
}
