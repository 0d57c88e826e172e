import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

/** The version of this program, from its package.json. */
export function readVersion(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}

export function registerVersion(program: Command): void {
  addCommand(program, "version")
    .option("--json", "print JSON")
    .action((options: { json?: boolean }) => {
      const version = readVersion();
      if (options.json) writeJson({ espalier: version, node: process.versions.node });
      else writeResult(`espalier ${version} (Node ${process.versions.node})`);
    });
}
