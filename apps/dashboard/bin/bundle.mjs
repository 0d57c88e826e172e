// The files of the page: one script, one style sheet, the page, and the licenses of its libraries. As a command it writes them into `dist/page`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync, stop, transformSync } from "esbuild";
import { licensesOf } from "../../../scripts/licenses-of.mjs";
import { writeOutput } from "../../../scripts/write-output.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const source = (name) => join(root, "src", name);
const text = (path) => readFileSync(path, "utf8");

/** @returns the texts of the files, by name */
export function bundlePage() {
  const { outputFiles, metafile } = buildSync({
    metafile: true,
    absWorkingDir: root,
    entryPoints: [source("main.ts")],
    bundle: true,
    write: false,
    format: "esm",
    minify: true,
    target: "es2022",
    platform: "browser",
    legalComments: "inline",
    logLevel: "warning",
  });
  const styles = [createRequire(import.meta.url).resolve("uplot/dist/uPlot.min.css"), source("page/style.css")];
  const { code } = transformSync(styles.map(text).join("\n"), { loader: "css", minify: true });
  // Its thread and process would hold some 30 MB of a router that runs from the sources.
  stop();
  return {
    "LICENSES.txt": licensesOf(root, Object.keys(metafile.inputs)),
    "app.js": outputFiles[0].text,
    "index.html": text(source("page/index.html")),
    "style.css": code,
  };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeOutput(join(root, "dist", "page"), bundlePage());
}
