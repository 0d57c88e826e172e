// `npm run test:fresh`: what nobody has tried before, for a while: drawn seeds and changed bytes, which no gate may depend on.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root, setUp } from "./set-up.mjs";

const usage = `usage: npm run test:fresh -- [--minutes N]

Draws seeds of faults in virtual time, seeds of routers that converge, changed bytes for decoders, and cases for properties,
in turns, until the time is over or something is found. What is found prints the command that runs it again.

  --minutes N  1 to 1,440 (default 20); a turn that has begun is ended first
  --help       this text

Exit codes: 0 nothing found, 1 something was, 2 it was called wrongly.`;

/** A turn takes some minutes. */
const turns = [
  () => runScript("simulate-seeds.mjs", "--count", "100"),
  () => runScript("test-convergence.mjs", "--seeds", "16", "test/convergence/random.test.ts"),
  () => runScript("test-fuzz.mjs", "--seconds", "60"),
  runProperties,
];

const minutes = readMinutes();
await setUp();
const startMs = Date.now();
const leftMs = () => startMs + minutes * 60_000 - Date.now();
for (let turn = 0; turn === 0 || leftMs() > 0; turn++) {
  console.log(`${Math.max(0, Math.ceil(leftMs() / 60_000))} min left`);
  if (!turns[turn % turns.length]()) process.exit(1);
}
console.log(`nothing found in ${Math.round((Date.now() - startMs) / 60_000)} min`);

function runScript(script, ...args) {
  console.log(`${script} ${args.join(" ")}`);
  return runNode([join(root, "scripts", script), ...args]);
}

/** Tests of properties at their full depth, with cases that nobody has tried. */
function runProperties() {
  const seed = String(Date.now() % 1_000_000_000);
  const files = propertyFiles();
  console.log(`properties of ${files.length} files, seed ${seed}`);
  const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
  const env = { ...process.env, TEST_SEED: seed, TEST_DEPTH: "full", ESPALIER_SKIP_BUILD: "1" };
  const isGreen = runNode([vitest, "run", "--project", "unit", "--reporter=dot", ...files], env);
  if (!isGreen) console.log(`again: TEST_SEED=${seed} npm test -- FILE`);
  return isGreen;
}

function propertyFiles() {
  return ["packages", "apps"].flatMap((group) =>
    readdirSync(join(root, group)).flatMap((name) => {
      const folder = join(group, name, "test");
      if (!existsSync(join(root, folder))) return [];
      return readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
        .map((file) => join(folder, file))
        .filter((file) => file.endsWith(".test.ts") && readFileSync(join(root, file), "utf8").includes('"fast-check"'));
    }),
  );
}

function runNode(args, env = process.env) {
  return spawnSync(process.execPath, args, { cwd: root, stdio: "inherit", env }).status === 0;
}

function readMinutes() {
  try {
    const { values } = parseArgs({ options: { minutes: { type: "string" }, help: { type: "boolean", short: "h" } } });
    if (values.help) {
      console.log(usage);
      process.exit(0);
    }
    const given = values.minutes ?? "20";
    if (/^[1-9]\d{0,3}$/.test(given) && Number(given) <= 1_440) return Number(given);
    throw new Error("--minutes must be a whole number from 1 to 1440");
  } catch (error) {
    const [sentence] = error.message.split(/[.\n]/);
    console.error(`error: ${sentence}; \`npm run test:fresh -- --help\` lists the flags`);
    return process.exit(2);
  }
}
