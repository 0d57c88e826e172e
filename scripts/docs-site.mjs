// `npm run docs:site`, `docs:check` and `spell`. Their tools are installed in docs/site, and by nothing else: a site generator and two
// checkers of prose are twice as many packages as the rest of the repository needs.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { findings } from "./sentence-lines.mjs";
import { root, setUp } from "./set-up.mjs";

const usage = `usage: npm run docs:site
       npm run docs:check
       npm run spell [-- FILE...]

docs:site builds the documents into docs/site/dist, with search; no page loads anything from elsewhere. Links that lead nowhere
end it. docs:check does that and what spell does, and shows each rule of style a sentence that breaks it. spell checks the spelling
of documents, sources and scripts, or of these files, and the style of those that are documents. Words of the field and names of
ours are in docs/site/words.txt, the rules of style in docs/site/textlint.yaml; pages in the voice of CONTRIBUTING.md
have those of docs/site/voice.yaml too, and one sentence a line.

Exit codes: 0 all is well, 1 it is not, 2 it was called wrongly.`;

const site = join(root, "docs", "site");
/** What the rules of style are for. */
const documents = gitFiles("*.md");
/** Pages written in the project's voice: words that it never uses are found in them, and lines that are not one sentence. */
const voiced =
  /^(README|CONTRIBUTING|ARCHITECTURE|SECURITY|docs\/(README|GLOSSARY|LIMITS|MIGRATION|OPERATIONS|PROTOCOL|SCHEDULING|THREAT_MODEL)|docs\/(concepts|contributing|start|guides|why)\/.*|docs\/reference\/(engine-defaults|explain))\.md$/;
/** Documents, and whatever has comments, names and messages. What is made by programs or quotes other projects is left out in cspell.json. */
const spelled = ["*.md", "docs/**/*.md", "{packages,apps,bench}/*/src/**/*.ts", "bench/src/**/*.ts", "scripts/*.mjs"];

const { isCheck, isSpell, files } = readFlags();
await setUp();
install();
const results = [];
if (isSpell || isCheck) {
  results.push(spell(files.length === 0 ? spelled : files));
  results.push(style(files.length === 0 ? documents : files.filter((file) => file.endsWith(".md"))));
}
if (isCheck) results.push(run(process.execPath, ["--test", "--test-reporter=dot", "style.test.mjs"]));
if (!isSpell) results.push(build());
process.exit(results.every(Boolean) ? 0 : 1);

/** Installs what the lock file says, once. */
function install() {
  const stamp = join(site, "node_modules", ".cache", "espalier-installed");
  const lock = join(site, "package-lock.json");
  if ((statSync(stamp, { throwIfNoEntry: false })?.mtimeMs ?? 0) >= statSync(lock).mtimeMs) return;
  process.stderr.write("espalier: installing the tools of the documents (once, about a minute) ...\n");
  if (!run("npm", ["ci", "--loglevel=error"])) process.exit(1);
  mkdirSync(join(site, "node_modules", ".cache"), { recursive: true });
  writeFileSync(stamp, "");
  utimesSync(stamp, new Date(), new Date());
}

function spell(paths) {
  const options = ["--config", join(site, "cspell.json"), "--root", root, "--no-progress", "--no-must-find-files"];
  return run(join(site, "node_modules", ".bin", "cspell"), ["lint", ...options, ...paths], root);
}

/** Sentences that are too long, words that say nothing or that the glossary has others for. */
function style(paths) {
  if (paths.length === 0) return true;
  const program = join(site, "node_modules", ".bin", "textlint");
  // It looks for its rules where it is started.
  const check = (config, files) =>
    files.length === 0 ||
    run(program, ["--config", config, "--format", "unix", ...files.map((path) => resolve(root, path))]);
  const inVoice = paths.filter((path) => voiced.test(path));
  return [check("textlint.yaml", paths), check("voice.yaml", inVoice), lines(inVoice)].every(Boolean);
}

function lines(paths) {
  const found = paths.flatMap((path) =>
    findings(readFileSync(resolve(root, path), "utf8")).map(({ line, message }) => `${path}:${line}: ${message}`),
  );
  if (found.length > 0) console.log(`${found.join("\n")}\nnode scripts/sentence-lines.mjs --write FILE wraps them`);
  return found.length === 0;
}

function build() {
  if (!run(join(site, "node_modules", ".bin", "vitepress"), ["build"])) return false;
  console.log(`docs/site/dist/index.html${existsSync(join(site, "dist", "index.html")) ? "" : " is missing"}`);
  return true;
}

/** The files of this name that git tracks or would track, from the root. */
function gitFiles(pattern) {
  return spawnSync("git", ["ls-files", "-co", "--exclude-standard", pattern], { cwd: root, encoding: "utf8" })
    .stdout.split("\n")
    .filter(Boolean);
}

function run(command, args, cwd = site) {
  return spawnSync(command, args, { cwd, stdio: "inherit" }).status === 0;
}

function readFlags() {
  try {
    const { values, positionals } = parseArgs({
      options: { check: { type: "boolean" }, spell: { type: "boolean" }, help: { type: "boolean", short: "h" } },
      allowPositionals: true,
    });
    if (!values.help) return { isCheck: values.check, isSpell: values.spell, files: positionals };
    console.log(usage);
    return process.exit(0);
  } catch (error) {
    console.error(`error: ${error.message.split(/[.\n]/)[0]}; --help lists the flags`);
    return process.exit(2);
  }
}
