// node build.mjs DIR: bundles the dashboard into DIR (index.html, app.js, app.css, favicon.svg).
// node build.mjs DIR --pure: bundles only the functions that the unit tests call, as DIR/pure.mjs.
// SPDX-License-Identifier: Apache-2.0
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const src = join(dirname(fileURLToPath(import.meta.url)), "src");
const dir = process.argv[2];
if (!dir) {
	console.error("usage: build.mjs DIR [--pure]");
	process.exit(2);
}
mkdirSync(dir, { recursive: true });
if (process.argv[3] === "--pure") {
	await build({ entryPoints: [join(src, "pure.ts")], bundle: true, format: "esm",
		platform: "neutral", target: "es2020", outfile: join(dir, "pure.mjs"), logLevel: "warning" });
} else {
	await build({
		entryPoints: { app: join(src, "main.tsx") }, bundle: true, minify: true, format: "iife",
		target: ["chrome90", "firefox90", "safari15"], jsx: "automatic", jsxImportSource: "preact",
		outdir: dir, charset: "utf8", legalComments: "none", logLevel: "warning",
	});
	await build({ entryPoints: [join(src, "app.css")], bundle: true, minify: true,
		target: ["chrome90", "firefox90", "safari15"], outdir: dir, charset: "utf8", logLevel: "warning" });
	for (const name of ["index.html", "favicon.svg"])
		copyFileSync(join(src, name), join(dir, name));
}
