import type { Command } from "commander";
import { writeJson, writeResult } from "../output/write.ts";
import { type AdminOptions, addAdminOptions, askAdmin } from "./admin-client.ts";

interface Status {
  readonly ready: boolean;
  readonly reasons: readonly string[];
  readonly draining: boolean;
  readonly inFlight: number;
  readonly engines: number;
  readonly usableEngines: number;
  readonly models: readonly string[];
}

export function registerStatus(program: Command): void {
  const command = program
    .command("status")
    .summary("say how a running router is")
    .description("Asks a running router whether it is ready, and why not. Exits with 1 when it is not.");
  addAdminOptions(command).action(async (options: AdminOptions) => {
    const status = await askAdmin<Status>(options, "/admin/status");
    if (options.json) writeJson(status);
    else writeResult(describe(status));
    if (!status.ready) process.exitCode = 1;
  });
}

function describe(status: Status): string {
  const state = status.ready ? "ready" : `not ready: ${status.reasons.join("; ")}`;
  return [
    state,
    `engines   ${status.usableEngines} of ${status.engines} usable`,
    `models    ${status.models.join(", ") || "none"}`,
    `in flight ${status.inFlight}`,
  ].join("\n");
}
