import type { ReloadOutcome } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin } from "../cli/admin-client.ts";
import { writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

export function registerReload(program: Command): void {
  const command = addCommand(program, "reload").description(
    "Reloads the configuration of a running router, as SIGHUP or a change of its file does. Reloadable settings " +
      "apply at once; others are listed and need a restart. Exits with 1, and changes nothing, if the " +
      "configuration is invalid.",
  );
  addAdminOptions(command).action(async (options: AdminOptions) => {
    const outcome = await askAdmin<ReloadOutcome>(options, "/admin/reload", { method: "POST", json: "{}" });
    if (options.json) writeJson(outcome);
    else writeResult(describeReload(outcome));
    if (outcome.error) process.exitCode = 1;
  });
}

/** @returns lines to print */
export function describeReload({ applied, needsRestart, error }: ReloadOutcome): string {
  if (error) return `not reloaded, previous configuration in use: ${error.message}`;
  const lines = [applied.length === 0 ? "no changes" : `applied: ${applied.join(", ")}`];
  if (needsRestart.length > 0) lines.push(`needs a restart: ${needsRestart.join(", ")}`);
  return lines.join("\n");
}
