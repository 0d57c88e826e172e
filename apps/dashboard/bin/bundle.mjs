// Makes the files of the page from what `tsc` has made: one script, one style sheet, and the page, into `dist/page`.
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync, transformSync } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const out = join(root, "dist", "page");
const require = createRequire(import.meta.url);

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
buildSync({
  entryPoints: [join(root, "dist", "main.js")],
  outfile: join(out, "app.js"),
  bundle: true,
  format: "esm",
  minify: true,
  target: "es2022",
  platform: "browser",
  legalComments: "inline",
  logLevel: "warning",
});
const styles = [require.resolve("uplot/dist/uPlot.min.css"), join(root, "src", "page", "style.css")];
const text = styles.map((path) => readFileSync(path, "utf8")).join("\n");
writeFileSync(join(out, "style.css"), transformSync(text, { loader: "css", minify: true }).code);
copyFileSync(join(root, "src", "page", "index.html"), join(out, "index.html"));
