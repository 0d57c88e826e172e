import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { licensesOf } from "./licenses-of.mjs";
import { writeOutput } from "./write-output.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

/**
 * What stays a package beside the bundles: those that find files of their own beside them, a native library and the page; and
 * the client of Redis, which does not come back from a lost connection when it is part of a bundle (`test/chaos/redis`).
 */
export const external = ["zeromq", "@espalier/dashboard", "@redis/client"];

/**
 * Joins a program, the packages that it uses and their libraries into a few files in `dist/bundle` of its package: Node reads and
 * links some hundred modules less, and keeps no comments of them in memory. Names and lines stay, so that a stack trace can be
 * read. The licenses of the libraries are in `LICENSES.txt` beside them.
 *
 * @param {string} folder of the package, absolute
 * @param {Readonly<Record<string, string>>} entryPoints files, by the name of what becomes of them
 */
export function bundleProgram(folder, entryPoints) {
  const outdir = join(folder, "dist", "bundle");
  const { outputFiles, metafile } = buildSync({
    write: false,
    metafile: true,
    absWorkingDir: root,
    entryPoints,
    outdir,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node24",
    external,
    // Libraries in CommonJS ask for modules of Node, and modules have no `require` of their own.
    banner: {
      js: [
        'import { createRequire as requireFrom } from "node:module";',
        "const require = requireFrom(import.meta.url);",
      ].join("\n"),
    },
    legalComments: "eof",
    logLevel: "warning",
  });
  const programs = outputFiles.map(({ path, text }) => [basename(path), inAscii(text)]);
  const licenses = licensesOf(root, Object.keys(metafile.inputs));
  writeOutput(outdir, { ...Object.fromEntries(programs), "LICENSES.txt": licenses });
}

/**
 * The same program in ASCII: one other letter, if only in a comment, makes V8 keep two bytes for each character of a file.
 * esbuild has escaped those of strings.
 */
const inAscii = (text) =>
  text.replace(/[\u0080-\uffff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
