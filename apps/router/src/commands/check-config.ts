import { existsSync } from "node:fs";
import { join } from "node:path";
import { type CompiledConfig, describeConfig, renderConfigYaml } from "@espalier/config";
import type { Command } from "commander";
import { writeJson, writeNote, writeResult } from "../output.ts";
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
    for (const warning of [...config.warnings, ...tokenizerWarnings(config)]) writeNote(`warning: ${warning}`);
    if (command.opts().json) writeJson(describeConfig(config));
    else writeResult(renderConfigYaml(config));
  });
}

/** What the configuration asks for and this machine, which may be another one than the router's, does not have. */
function tokenizerWarnings({ tokenizers, kvEvents, engines }: CompiledConfig): readonly string[] {
  const absent = tokenizers.flatMap(({ path }, at) =>
    path === undefined || existsSync(join(path, "tokenizer.json"))
      ? []
      : [
          `tokenizers[${at}].path: ${path} has no tokenizer.json here: its models' prompts would be matched by their bytes`,
        ],
  );
  const asksForEvents = kvEvents.listen !== undefined || engines.some((engine) => engine.kvEvents !== undefined);
  if (!asksForEvents || tokenizers.some(({ mode }) => mode !== "bytes")) return absent;
  return [...absent, "there is no tokenizer: KV events of engines are read, and no prompt is compared with them"];
}
