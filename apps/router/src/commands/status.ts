import type { Command } from "commander";
import { describeMesh, type MeshStatus } from "../output/mesh-status.ts";
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
  /** Null for a router that shares nothing. */
  readonly mesh: MeshStatus | null;
}

export function registerStatus(program: Command): void {
  const command = program
    .command("status")
    .summary("say how a running router is")
    .description(
      "Asks a running router whether it is ready, and why not, and what it shares with which others: members, how far " +
        "behind they are, whether their state agrees, traffic, and who reads which engine's events. Exits with 1 when it " +
        "is not ready.",
    );
  addAdminOptions(command).action(async (options: AdminOptions) => {
    const status = await askAdmin<Status>(options, "/admin/status");
    if (options.json) writeJson(status);
    else writeResult(describe(status));
    if (!status.ready) process.exitCode = 1;
  });
}

function describe(status: Status): string {
  const state = status.ready ? "ready" : `not ready: ${status.reasons.join("; ")}`;
  const lines = [
    state,
    `engines   ${status.usableEngines} of ${status.engines} usable`,
    `models    ${status.models.join(", ") || "none"}`,
    `in flight ${status.inFlight}`,
  ];
  return status.mesh === null ? lines.join("\n") : [...lines, "", describeMesh(status.mesh)].join("\n");
}
