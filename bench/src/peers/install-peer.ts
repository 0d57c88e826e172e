import { spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { installVenv } from "../support/python-venv.ts";
import { installDebianPackage } from "./debian-packages.ts";
import type { Product } from "./products.ts";

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
    const requirement = `${source.package}==${source.release}`;
    const venv = {
      ...{ folder: resolve(folder, `${source.package}-${source.release}`), requirements: [requirement] },
      ...{ python: () => "python3", name: requirement, program: source.program, timeoutMs: pipTimeoutMs },
    };
    return { product, program: await installVenv(venv, note), version: source.release };
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

/** @returns undefined when the program is absent or does not run */
function versionOf(program: string, libraryPath?: string): string | undefined {
  const libraries = libraryPath === undefined ? [] : [`LD_LIBRARY_PATH=${libraryPath}`];
  const { status, stdout, stderr } = spawnSync("env", [...libraries, program, "-v"], {
    encoding: "utf8",
    timeout: versionTimeoutMs,
  });
  return status === 0 ? (/\d+\.\d+\.\d+/.exec(stdout + stderr)?.[0] ?? "unknown") : undefined;
}
