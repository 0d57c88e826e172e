// Joins the command, the packages that it uses and their libraries into a few files in `dist/bundle`: Node reads and links some
// 900 modules less, and keeps no comments of them in memory. Names and lines stay, so that a stack trace can be read.
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { writeOutput } from "../../../scripts/write-output.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const outdir = join(root, "dist", "bundle");
const beside = (name, path) => fileURLToPath(new URL(path, import.meta.resolve(name)));

const { outputFiles } = buildSync({
  write: false,
  // Programs of threads and of child processes stand beside the modules that start them, as those look for them.
  entryPoints: {
    main: join(root, "src", "main.ts"),
    "child-main": join(root, "src", "simulate", "child-main.ts"),
    "large-body-worker": beside("@espalier/server", "large-bodies/large-body-worker.ts"),
    "warm-up-traffic": beside("@espalier/server", "warm-up-traffic.ts"),
    "tokenizer-worker": beside("@espalier/tokenizer", "workers/tokenizer-worker.ts"),
  },
  outdir,
  bundle: true,
  splitting: true,
  format: "esm",
  platform: "node",
  target: "node24",
  // Those that find files of their own beside them, a native library and the page; and the client of Redis, which does not
  // come back from a lost connection when it is part of a bundle (`test/chaos/redis`).
  external: ["zeromq", "@espalier/dashboard", "@redis/client"],
  // Libraries in CommonJS ask for modules of Node, and modules have no `require` of their own.
  banner: {
    js: 'import { createRequire as requireFrom } from "node:module";\nconst require = requireFrom(import.meta.url);',
  },
  legalComments: "eof",
  logLevel: "warning",
});

/**
 * The same program in ASCII: one other letter, if only in a comment, makes V8 keep two bytes for each character of a file.
 * esbuild has escaped those of strings.
 */
const inAscii = (text) =>
  text.replace(/[\u0080-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);

writeOutput(outdir, Object.fromEntries(outputFiles.map(({ path, text }) => [basename(path), inAscii(text)])));
