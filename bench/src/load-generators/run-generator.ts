import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { shippedModelFolder } from "@espalier/tokenizer";
import { installVllm } from "../real-engine/install-vllm.ts";
import { benchModel } from "../support/bench-model.ts";
import type { Figures } from "../support/median-spread.ts";
import { findPython, installVenv } from "../support/python-venv.ts";
import { runProgram } from "../support/run-program.ts";
import type { DocumentedCommand } from "./documented-commands.ts";
import { type LoadGenerator, loadGenerators } from "./generators.ts";

const lockFolder = fileURLToPath(new URL("../../load-generators", import.meta.url));
/** For these the packages in the lock files have wheels. */
const pythons = { oldest: 12, newest: 13 };
const installTimeoutMs = 1_200_000;
/** Starting one takes up to a minute on a busy machine. */
const runTimeoutMs = 600_000;

/** The generator whose command this is. @throws Error when there is none */
export function generatorOf({ command }: DocumentedCommand): LoadGenerator {
  const program = /^\S+/.exec(command)?.[0];
  const generator = loadGenerators.find((each) => each.program === program);
  if (generator === undefined) throw new Error(`no load generator is called ${program}`);
  return generator;
}

/**
 * Installs a load generator under `folder`, once, with every package in the release that its lock file names.
 *
 * @param vllmFolder of vLLM, which `npm run test:real-engine` uses too
 * @returns the folder of its program
 * @throws Error when Python is missing or pip fails
 */
export async function installGenerator(
  { program, package: name, release }: LoadGenerator,
  { folder, vllmFolder }: { readonly folder: string; readonly vllmFolder: string },
  note: (line: string) => void,
): Promise<string> {
  if (program === "vllm") return resolve(await installVllm(vllmFolder, note), "..");
  const venv = {
    ...{ folder: resolve(folder, `${name}-${release}`), python: () => findPython(pythons), program },
    requirements: ["--no-deps", "--requirement", join(lockFolder, `${name}.txt`)],
    ...{ name: `${name} ${release}`, timeoutMs: installTimeoutMs },
  };
  return dirname(await installVenv(venv, note));
}

/**
 * Runs a command in a folder of its own, and reads its report. It finds the tokenizer that is shipped here under the name of
 * the model, as if it had been downloaded from the model hub before.
 *
 * @param bin folder of its program
 * @param prepare writes what the command reads into the folder
 * @throws Error with its last output when it fails, or when it leaves no report
 */
export async function runGenerator(
  { command, files }: DocumentedCommand,
  generator: LoadGenerator,
  bin: string,
  prepare: (folder: string) => void,
): Promise<Figures> {
  const folder = mkdtempSync(join(tmpdir(), `espalier-bench-${generator.program}-`));
  try {
    const hub = join(folder, "hub");
    writeHub(hub);
    prepare(folder);
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
    const variables = [`HF_HUB_CACHE=${hub}`, "HF_HUB_OFFLINE=1", `HOME=${folder}`, "NO_PROXY=127.0.0.1"];
    const script = `PATH="$0:$PATH"; exec ${command}`;
    await runProgram("env", [...variables, "sh", "-c", script, bin], { folder, timeoutMs: runTimeoutMs });
    const report = readdirSync(folder, { recursive: true, encoding: "utf8" }).find((path) =>
      generator.report.test(basename(path)),
    );
    if (report === undefined) throw new Error(`${generator.program} ended without its report`);
    return generator.read(JSON.parse(readFileSync(join(folder, report), "utf8")));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Writes a model hub's cache with one model, whose files are those of the shipped tokenizer. */
function writeHub(hub: string): void {
  const model = join(hub, `models--${benchModel}`);
  const snapshot = join(model, "snapshots", "shipped");
  mkdirSync(join(model, "refs"), { recursive: true });
  mkdirSync(snapshot, { recursive: true });
  writeFileSync(join(model, "refs", "main"), "shipped");
  writeFileSync(join(snapshot, "config.json"), "{}");
  const shipped = shippedModelFolder();
  for (const name of readdirSync(shipped)) symlinkSync(join(shipped, name), join(snapshot, name));
}
