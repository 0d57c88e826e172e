import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readTreeUsage } from "../support/process-tree.ts";
import { runProgram } from "../support/run-program.ts";
import { concurrency } from "./loads.ts";
import type { System } from "./measure-load.ts";
import { type PreparedRequest, serialDigits } from "./prepared-request.ts";

/** The message when it is not available. */
export const wrkMissing = "NOT RUN: wrk is not on the PATH (Debian: apt-get install wrk)";

const killAfterMs = 60_000;
/** Beyond the numbers of our own load generator. */
const firstSerial = 900_000_000_000;

export function hasWrk(): boolean {
  return spawnSync("wrk", ["-v"]).error === undefined;
}

/**
 * A closed loop with an independent load generator, as a check of ours.
 *
 * @returns CPU microseconds per request
 * @throws Error when a request fails
 */
export async function measureWithWrk(
  { name, urls, pid }: System & { readonly pid: number },
  request: PreparedRequest,
  durationMs: number,
): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-wrk-"));
  try {
    writeFileSync(join(folder, "request"), request.bytes);
    writeFileSync(join(folder, "script.lua"), script(join(folder, "request"), request.serialAt));
    const before = readTreeUsage(pid).cpuSeconds;
    const options = ["-t1", `-c${concurrency}`, `-d${Math.ceil(durationMs / 1_000)}s`, "--timeout", "20s"];
    const output = await runProgram("wrk", [...options, "-s", join(folder, "script.lua"), urls[0] ?? ""], {
      timeoutMs: killAfterMs,
    });
    const spent = readTreeUsage(pid).cpuSeconds - before;
    const [, requests = 0, errors = Number.NaN] = /^counted (\d+) (\d+)$/m.exec(output)?.map(Number) ?? [];
    if (errors !== 0) throw new Error(`${errors} requests of wrk to ${name} failed`);
    return (spent * 1e6) / requests;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Each request gets its own number, as in our own load generator. */
function script(file: string, serialAt: number): string {
  return `local bytes = io.open("${file}", "rb"):read("*a")
local before, after = bytes:sub(1, ${serialAt}), bytes:sub(${serialAt + serialDigits + 1})
local serial = ${firstSerial} + os.time() % 100000 * 100000
function request()
  serial = serial + 1
  return before .. string.format("%0${serialDigits}.0f", serial) .. after
end
function done(summary)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("counted %d %d\\n", summary.requests, failed))
end
`;
}
