// `npm run test:mutants`: changes the sources, one small change at a time, and tells which changes no test notices.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { findMutants } from "./mutants/mutators.mjs";
import { mutatedFiles } from "./mutants/packages.mjs";
import { runMutants } from "./mutants/run-mutants.mjs";
import { root, setUp } from "./set-up.mjs";

const defaultSample = 200;
const progressMs = 5_000;

const usage = `usage: npm run test:mutants -- --package NAME [--files GLOB] [--sample N|all] [--seed N] [--since COMMIT]
                                       [--mutant FILE#N] [--threshold N] [--json]

Changes the sources of a package, one small change (a mutant) at a time: comparisons, conditions, guards, calls, returned
values, bounds. A mutant that no test of \`npm test\` notices survives: a test is missing, or the code is not needed.

  --package NAME    ${Object.keys(mutatedFiles).join(", ")}, or a folder with src and test
  --files GLOB      sources from the package's folder, such as 'src/feed/**'; without it those of scripts/mutants/packages.mjs
  --sample N|all    so many mutants, drawn evenly (default ${defaultSample})
  --seed N          draws others (default 1)
  --since COMMIT    only in files that have changed since
  --mutant FILE#N   that one, with what it changes
  --threshold N     exit code 1 when less than N per cent are noticed
  --json            one line of JSON
  --help            this text

A mutant whose test hangs counts as noticed, one that no test reaches as not. Test files with vi.mock are left out; for
server some suites of test/integration are run besides, from its sources.
Exit codes: 0, or with --threshold 1 below it; 2 it was called wrongly, 3 a test fails without any mutant, 130 interrupted.`;

const values = readFlags();
if (values.help) {
  console.log(usage);
  process.exit(0);
}
const options = readOptions();
await setUp();
const folder = packageFolder(options.package);
const chosen = chooseMutants();
const interrupt = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => interrupt.abort());
const startMs = performance.now();
const plan = { folder, mutants: chosen, testFiles: testFiles() };
const results = await runMutants(plan, tellProgress(), interrupt.signal).catch((error) => fail(error.message, 3));
const summary = summarise();
if (values.json) console.log(JSON.stringify(summary));
else tell(summary);
if (interrupt.signal.aborted) process.exit(130);
process.exit(options.threshold !== undefined && summary.score < options.threshold ? 1 : 0);

function packageFolder(name) {
  const path = name.includes("/") ? name : join("packages", name);
  if (existsSync(join(root, path, "src")) && existsSync(join(root, path, "test"))) return path;
  return fail(`${path} has no src and test; \`npm run test:mutants -- --help\` lists the packages`);
}

/** The mutants to run, in the order of the files and of the text, each with its name. */
function chooseMutants() {
  const [onlyFile, onlyIndex] = options.mutant?.split("#") ?? [];
  const files = onlyFile ? [onlyFile] : sourceFiles();
  const all = files.flatMap((file) =>
    findMutants(readFileSync(join(root, folder, file), "utf8")).map((mutant, index) => ({ ...mutant, file, index })),
  );
  const named = all.map((mutant, id) => ({ ...mutant, id, name: `${mutant.file}#${mutant.index}` }));
  if (onlyFile === undefined) return draw(named);
  const only = named.filter(({ index }) => index === Number(onlyIndex));
  return only.length > 0 ? only : fail(`${options.mutant} is no mutant`);
}

function sourceFiles() {
  const globs = options.files ? [options.files] : (mutatedFiles[options.package]?.files ?? ["src/**"]);
  const patterns = globs.map(toPattern);
  const files = filesIn("src")
    .filter((path) => /\.ts$/.test(path) && patterns.some((pattern) => pattern.test(path)))
    .filter(changedSince());
  return files.length > 0 ? files : fail("no file is named by --files and --since");
}

function changedSince() {
  if (options.since === undefined) return () => true;
  const { status, stdout } = spawnSync("git", ["diff", "--name-only", options.since], { cwd: root, encoding: "utf8" });
  if (status !== 0) fail(`git knows no commit ${options.since}`);
  const changed = new Set(stdout.split("\n"));
  return (path) => changed.has(join(folder, path));
}

function filesIn(part) {
  const paths = readdirSync(join(root, folder, part), { recursive: true, encoding: "utf8" });
  return paths.map((path) => join(part, path)).sort();
}

/** Test files of `npm test` that need no modules of their own. */
function testFiles() {
  const own = filesIn("test").filter((path) => path.endsWith(".test.ts") && !path.endsWith(".deep.test.ts"));
  const others = (mutatedFiles[options.package]?.tests ?? []).map((path) => relative(folder, path));
  return [...own, ...others].filter((path) => !/\bvi\.mock\(/.test(readFileSync(join(root, folder, path), "utf8")));
}

/** `**` stands for any folders, `*` for a part of a name. */
function toPattern(glob) {
  const escaped = glob.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replace(/\*+/g, (stars) => (stars.length > 1 ? ".*" : "[^/]*"))}$`);
}

/** As many as the sample: the same ones for the same seed, as far as their lines have not changed. */
function draw(mutants) {
  if (options.sample === "all" || mutants.length <= options.sample) return mutants;
  const seen = new Map();
  const ranked = mutants.map((mutant) => {
    const { file, mutator, before, after } = mutant;
    const text = JSON.stringify([options.seed, file, mutator, before, after]);
    const count = (seen.get(text) ?? 0) + 1;
    seen.set(text, count);
    return { mutant, rank: createHash("sha256").update(`${text}${count}`).digest("hex") };
  });
  return ranked
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, options.sample)
    .map(({ mutant }) => mutant)
    .sort((a, b) => a.id - b.id);
}

/** A line on standard error: on a terminal always the same one, elsewhere now and then. */
function tellProgress() {
  const isTerminal = process.stderr.isTTY === true;
  let shownMs = Number.NEGATIVE_INFINITY;
  let firstMs;
  return (results, step) => {
    const nowMs = performance.now();
    if (step === "") firstMs ??= nowMs;
    if (nowMs - shownMs < (isTerminal ? 100 : progressMs)) return;
    shownMs = nowMs;
    const done = results.size;
    const leftS = done === 0 ? undefined : Math.ceil((((nowMs - firstMs) / done) * (chosen.length - done)) / 1_000);
    const left = leftS === undefined ? "" : `, about ${leftS} s left`;
    const lived = [...results.values()].filter(({ verdict }) => isAlive(verdict)).length;
    const filled = Math.round((20 * done) / chosen.length);
    const bar = "#".repeat(filled).padEnd(20, ".");
    const line = step === "" ? `[${bar}] ${done} of ${chosen.length}, ${lived} survived${left}` : step;
    process.stderr.write(isTerminal ? `\r\x1b[K${line}` : `${line}\n`);
  };
}

function isAlive(verdict) {
  return verdict === "survived" || verdict === "uncovered";
}

function summarise() {
  const judged = chosen.filter(({ id }) => results.has(id));
  const count = (wanted) => judged.filter(({ id }) => results.get(id).verdict === wanted).length;
  const noticed = count("killed") + count("timedOut");
  return {
    package: options.package,
    date: new Date().toISOString().slice(0, 10),
    seed: options.seed,
    sample: options.sample,
    mutants: judged.length,
    killed: count("killed"),
    timedOut: count("timedOut"),
    survived: count("survived"),
    uncovered: count("uncovered"),
    score: judged.length === 0 ? 0 : Math.round((1_000 * noticed) / judged.length) / 10,
    seconds: Math.round((performance.now() - startMs) / 1_000),
    survivors: judged.filter(({ id }) => isAlive(results.get(id).verdict)).map(describe),
    ...(options.mutant === undefined ? {} : { noticedBy: results.get(judged[0]?.id)?.by }),
  };
}

function describe({ id, name, file, line, mutator, before, after }) {
  const { verdict } = results.get(id);
  return { mutant: name, file: join(folder, file), line, mutator, before, after, verdict };
}

function tell(summary) {
  if (process.stderr.isTTY) process.stderr.write("\r\x1b[K");
  if (options.mutant !== undefined) {
    const [{ file, line, mutator, before, after, id }] = chosen;
    const { verdict, by } = results.get(id) ?? {};
    console.log(
      `${join(folder, file)}:${line} ${mutator}\n- ${before}\n+ ${after}\n${verdict}${by ? ` by: ${by}` : ""}`,
    );
    return;
  }
  for (const { mutant, file, line, mutator, before, after, verdict } of summary.survivors) {
    console.log(
      `${file}:${line} ${short(before)} -> ${short(after) || "nothing"}  (${mutator}, ${verdict}, ${mutant})`,
    );
  }
  const [first] = summary.survivors;
  if (first) console.log(`one alone: npm run test:mutants -- --package ${options.package} --mutant '${first.mutant}'`);
  const { mutants, killed, timedOut, survived, uncovered, score, seed, seconds } = summary;
  if (interrupt.signal.aborted) console.log(`interrupted after ${mutants} of ${chosen.length}`);
  console.log(
    `${options.package}: ${score} % of ${mutants} mutants noticed (${killed} killed, ${timedOut} timed out, ` +
      `${survived} survived, ${uncovered} uncovered), seed ${seed}, ${seconds} s`,
  );
}

function short(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= 80 ? line : `${line.slice(0, 77)}...`;
}

function readOptions() {
  if (values.package === undefined) return fail("--package is missing");
  return {
    package: values.package,
    files: values.files,
    since: values.since,
    mutant: values.mutant,
    seed: wholeNumber("seed", values.seed ?? "1"),
    sample: values.sample === "all" ? "all" : wholeNumber("sample", values.sample ?? String(defaultSample)),
    threshold: values.threshold === undefined ? undefined : wholeNumber("threshold", values.threshold),
  };
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        package: { type: "string" },
        files: { type: "string" },
        sample: { type: "string" },
        seed: { type: "string" },
        since: { type: "string" },
        mutant: { type: "string" },
        threshold: { type: "string" },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    }).values;
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    return fail(`${sentence}; \`npm run test:mutants -- --help\` lists the flags`);
  }
}

function wholeNumber(flag, text) {
  if (!/^\d{1,9}$/.test(text) || (flag === "sample" && text === "0")) {
    fail(`--${flag} must be a whole number of at most nine digits`);
  }
  return Number(text);
}

function fail(message, code = 2) {
  console.error(`error: ${message}`);
  process.exit(code);
}
