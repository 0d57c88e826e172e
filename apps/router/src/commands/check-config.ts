import { describeConfig, renderConfigYaml } from "@espalier/config";
import type { Command } from "commander";
import { writeJson, writeNote, writeResult } from "../output/write.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, readConfig } from "./config-flags.ts";

export function registerCheckConfig(program: Command): void {
  const command = addCommand(program, "check-config")
    .description(
      "Reads flags, environment and file as `serve` would, and prints the complete configuration with secrets masked.\n" +
        "Exits with 1 and one line for each problem when it is not valid.",
    )
    .option("--json", "print JSON instead of YAML");
  addConfigFlags(command).action(() => {
    const config = readConfig(command);
    for (const warning of config.warnings) writeNote(`warning: ${warning}`);
    if (command.opts().json) writeJson(describeConfig(config));
    else writeResult(renderConfigYaml(config));
  });
}
