import type { ReloadOutcome } from "@espalier/server";
import type { Command } from "commander";
import { describeMesh, type MeshStatus } from "../output/mesh-status.ts";
import { UsageError } from "../output/usage-error.ts";
import { watch } from "../output/watch.ts";
import { writeJson, writeResult } from "../output/write.ts";
import { abortOnSignal } from "../signals.ts";
import { type AdminOptions, addAdminOptions, askAdmin } from "./admin-client.ts";
import { addCommand } from "./command-list.ts";

interface Status {
  readonly ready: boolean;
  readonly reasons: readonly string[];
  readonly draining: boolean;
  readonly inFlight: number;
  readonly engines: number;
  readonly usableEngines: number;
  readonly models: readonly string[];
  /** Null for a router that shares nothing. */
  readonly mesh: MeshStatus | null;
  /** Null when there was none. */
  readonly lastReload: ReloadOutcome | null;
}

export function registerStatus(program: Command): void {
  const command = addCommand(program, "status").description(
    "Asks a running router whether it is ready, and why not, and what it shares with which others: members, how far " +
      "behind they are, whether their state agrees, traffic, and who reads which engine's events. Exits with 1 when it " +
      "is not ready.",
  );
  const watched = "again every so many seconds, 2 unless given, until Ctrl-C; with --json one line each time";
  addAdminOptions(command)
    .option("--watch [seconds]", watched)
    .action(async (options: StatusOptions) => {
      const ask = (): Promise<Status> => askAdmin<Status>(options, "/admin/status");
      if (options.watch !== undefined) {
        const look = async (): Promise<string> => (options.json ? JSON.stringify(await ask()) : describe(await ask()));
        return watch({ periodMs: readPeriodMs(options.watch), signal: abortOnSignal(), look });
      }
      const status = await ask();
      if (options.json) writeJson(status);
      else writeResult(describe(status));
      if (!status.ready) process.exitCode = 1;
    });
}

interface StatusOptions extends AdminOptions {
  /** True without a number. */
  readonly watch?: string | true;
}

const standardPeriodMs = 2_000;
const longestPeriodMs = 3_600_000;

/** @throws UsageError */
function readPeriodMs(written: string | true): number {
  if (written === true) return standardPeriodMs;
  const periodMs = Number(written) * 1_000;
  if (periodMs >= 100 && periodMs <= longestPeriodMs) return periodMs;
  throw new UsageError(`--watch ${written}: expected seconds from 0.1 to 3600`);
}

function describe(status: Status): string {
  const state = status.ready ? "ready" : `not ready: ${status.reasons.join("; ")}`;
  const lines = [
    state,
    `engines   ${status.usableEngines} of ${status.engines} usable`,
    `models    ${status.models.join(", ") || "none"}`,
    `in flight ${status.inFlight}`,
  ];
  const { error, needsRestart } = status.lastReload ?? {};
  if (error) lines.push(`config    its last reload failed, the one before is in force: ${error.message}`);
  if (needsRestart?.length) lines.push(`config    waits for a restart: ${needsRestart.join(", ")}`);
  return status.mesh === null ? lines.join("\n") : [...lines, "", describeMesh(status.mesh)].join("\n");
}
