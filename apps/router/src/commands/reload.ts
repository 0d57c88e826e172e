import type { ReloadOutcome } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin } from "../cli/admin-client.ts";
import { writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

export function registerReload(program: Command): void {
  const command = addCommand(program, "reload").description(
    "Has a running router read its configuration again, as SIGHUP and a change of its file do. What can change while it runs " +
      "applies at once; the rest is named and waits for a restart. Exits with 1, and changes nothing, when the " +
      "configuration is not valid.",
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
  if (error) return `not reloaded, the old configuration stays: ${error.message}`;
  const lines = [applied.length === 0 ? "nothing new to apply" : `applied: ${applied.join(", ")}`];
  if (needsRestart.length > 0) lines.push(`waits for a restart: ${needsRestart.join(", ")}`);
  return lines.join("\n");
}
