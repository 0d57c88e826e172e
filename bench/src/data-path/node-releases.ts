import { fileURLToPath } from "node:url";
import { optional, text } from "../support/params.ts";
import { runProgram } from "../support/run-program.ts";
import { UsageError } from "../support/usage-error.ts";
import type { NodeRelease } from "./contenders.ts";

/** The flag for it. */
export const nodeParam = optional(
  text("LIST", "the router in these releases of Node besides, such as 24,26, which npm brings", ""),
);

const installTimeoutMs = 300_000;

/**
 * Installs further releases of Node.
 *
 * @param list such as `24,26`; undefined for none
 * @throws UsageError for anything else, Error when one is not available
 */
export async function installReleases(list: string | undefined): Promise<readonly NodeRelease[]> {
  const releases: NodeRelease[] = [];
  for (const name of list?.split(",") ?? []) {
    if (!/^\d+(\.\d+){0,2}$/.test(name)) throw new UsageError(`--node: ${JSON.stringify(name)} is not a Node release`);
    const script = fileURLToPath(new URL("../../../scripts/node-release.mjs", import.meta.url));
    const program = (await runProgram(process.execPath, [script, name], { timeoutMs: installTimeoutMs })).trim();
    const version = (await runProgram(program, ["--version"])).trim().replace(/^v/, "");
    releases.push({ name, version, program });
  }
  return releases;
}
