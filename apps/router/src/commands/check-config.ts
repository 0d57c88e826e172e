import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { EspalierError } from "@espalier/core";
import { createPolicy } from "@espalier/policies";
import { type CompiledConfig, configJsonSchema, describeConfig, loadPlugins, renderConfigYaml } from "@espalier/server";
import type { Command } from "commander";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, configFile, readConfig } from "./config-flags.ts";

export function registerCheckConfig(program: Command): void {
  const command = addCommand(program, "check-config")
    .description(
      "Prints the effective configuration of `serve`: flags, environment, file and defaults, with secrets masked.\n" +
        "If it is invalid, exits with 1 and prints one line per problem.",
    )
    .option("--changed", "print only non-default values")
    .option("--json", "print JSON instead of YAML");
  addConfigFlags(command).action(async () => {
    const file = configFile(command);
    const config = readConfig(command, file);
    if (file !== undefined && command.getOptionValueSource("config") !== "cli") writeNote(`read ${resolve(file)}`);
    await checkPlugins(config);
    const missing = missingTokenizers(config);
    if (missing.length > 0) throw new EspalierError("config_invalid", missing.join("\n"));
    const { changed, json } = command.opts<{ changed?: boolean; json?: boolean }>();
    for (const warning of [...config.warnings, ...eventWarnings(config)]) writeNote(`warning: ${warning}`);
    const shown = changed ? { ...config, effective: changedSettings(config) } : config;
    if (json) writeJson(describeConfig(shown));
    else writeResult(renderConfigYaml(shown));
  });
}

/** @throws EspalierError as `serve` would */
async function checkPlugins({ plugins, policy, pools }: CompiledConfig): Promise<void> {
  if (plugins.length === 0) return;
  const { policies } = await loadPlugins(plugins);
  for (const { name, options } of [policy, ...pools.map((pool) => pool.policy)]) {
    createPolicy(name, options, { custom: policies });
  }
}

/**
 * What differs from the defaults. Elements of lists, such as engines and pools, are compared with their own defaults.
 */
function changedSettings({ effective }: CompiledConfig): CompiledConfig["effective"] {
  return (withoutDefaults(effective, configJsonSchema) ?? {}) as CompiledConfig["effective"];
}

/** The part of a JSON Schema that locates defaults. */
interface Schema {
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
}

/** Undefined for a value equal to its default. */
function withoutDefaults(value: unknown, written: Schema | undefined): unknown {
  // When a plain text replaces a section, the section is the compiled value.
  const schema = written?.anyOf?.find(({ properties, items }) => properties ?? items) ?? written;
  if (Array.isArray(value)) {
    const changedItems = (items: readonly unknown[]) =>
      items.map((item) => withoutDefaults(item, schema?.items) ?? item);
    const standard = written?.default ?? [];
    const changed = changedItems(value);
    return Array.isArray(standard) && isDeepStrictEqual(changed, changedItems(standard)) ? undefined : changed;
  }
  if (typeof value !== "object" || value === null) return isDefault(value, written?.default) ? undefined : value;
  const { properties, additionalProperties } = schema ?? {};
  const ofEach = typeof additionalProperties === "object" ? additionalProperties : undefined;
  const changed = Object.entries(value).flatMap(([key, item]) => {
    const kept = properties?.[key] ? withoutDefaults(item, properties[key]) : (withoutDefaults(item, ofEach) ?? item);
    return kept === undefined ? [] : [[key, kept] as const];
  });
  return changed.length === 0 ? undefined : Object.fromEntries(changed);
}

const unitSizes: Readonly<Record<string, number>> = {
  ...{ ms: 1, s: 1_000, m: 60_000, h: 3_600_000 },
  ...{ B: 1, KiB: 1_024, MiB: 1_048_576, GiB: 1_073_741_824, kB: 1e3, MB: 1e6, GB: 1e9 },
};

/** The schema writes durations and sizes as text; the compiled configuration has milliseconds and bytes. */
function isDefault(value: unknown, standard: unknown): boolean {
  if (value === standard || (value ?? undefined) === standard) return true;
  const [, digits, unit = ""] = typeof standard === "string" ? (/^([\d.]+)([a-zA-Z]+)$/.exec(standard) ?? []) : [];
  return typeof value === "number" && value === Number(digits) * (unitSizes[unit] ?? Number.NaN);
}

/** Tokenizers whose files are not on this machine. A router serves without them, and matches prompts by their bytes. */
export function missingTokenizers({ tokenizers }: CompiledConfig): readonly string[] {
  return tokenizers.flatMap(({ path }, at) =>
    path === undefined || existsSync(join(path, "tokenizer.json"))
      ? []
      : [
          `tokenizers[${at}].path: ${resolve(path)} ${existsSync(path) ? "has no tokenizer.json" : "does not exist"}: prompts of its models would be matched by bytes`,
        ],
  );
}

export function eventWarnings({ tokenizers, kvEvents, engines }: CompiledConfig): readonly string[] {
  const asksForEvents = kvEvents.listen !== undefined || engines.some((engine) => engine.kvEvents !== undefined);
  if (!asksForEvents || tokenizers.some(({ mode }) => mode !== "bytes")) return [];
  return ["no tokenizer is configured: prompts cannot be matched with KV events"];
}
