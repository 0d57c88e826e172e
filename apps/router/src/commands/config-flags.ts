import { existsSync, readFileSync, statSync } from "node:fs";
import { EspalierError } from "@espalier/core";
import { type CompiledConfig, type FlagValues, flagCatalogue, loadConfig, replacedNames } from "@espalier/server";
import { type Command, Option } from "commander";
import { collect } from "../cli/read-flags.ts";
import { adviseOnFlag } from "../migrate/flags/foreign-routers.ts";
import { withAddress } from "./command-list.ts";

/** Adds `--config` and every flag of the configuration, each under its heading. */
export function addConfigFlags(command: Command): Command {
  command.addOption(
    new Option(
      "-c, --config <file>",
      `YAML or JSON file with the configuration (default: ${usualFiles.join(", or else ")}, where there is one)`,
    ).env("ESPALIER_CONFIG"),
  );
  // For programs that write it themselves.
  command.option("--config-folder <folder>", "where relative paths in that file start (default: its own folder)");
  for (const entry of flagCatalogue) {
    const standard = entry.default === undefined ? "" : ` (default: ${entry.default})`;
    const choices = entry.type.startsWith("one of") ? ` ${entry.type}.` : "";
    const option = new Option(
      `${entry.flag} <value>`,
      `${entry.description}${choices.replace("one of", "One of")}${alsoText(entry.aliases)}${standard}`,
    );
    if (entry.isRepeatable) option.argParser(collect);
    command.addOption(option.helpGroup(`${entry.group}`));
    for (const alias of entry.aliases) {
      // Flags for lists: other routers take several values after one such flag.
      const other = new Option(
        `${alias} <${entry.isRepeatable ? "value..." : "value"}>`,
        `The same as ${entry.flag}.`,
      ).hideHelp();
      if (entry.isRepeatable) other.argParser(collect);
      command.addOption(other);
    }
  }
  return command.configureOutput({
    outputError(text, write) {
      const [flag = ""] = /(?<=unknown option ')--[^'=]+/.exec(text) ?? [];
      const replacement = replacedNames.get(flag);
      if (replacement !== undefined) write(`error: ${flag} is replaced by ${replacement}\n`);
      else write(adviseOnFlag(flag) ?? withAddress(command, text));
    },
  });
}

const usualFiles = ["./espalier.yaml", "/etc/espalier/espalier.yaml"];

/** The file that a flag or the environment names, or else the first usual one that exists; undefined for none. */
export function configFile(command: Command, usual: readonly string[] = usualFiles): string | undefined {
  const { config } = command.opts<{ config?: string }>();
  return config === undefined ? usual.find((path) => existsSync(path)) : config || undefined;
}

/**
 * Reads the configuration again and again. It is parsed anew when a file that it is of has changed: thousands of keys or
 * engines take tenths of a second of the event loop.
 *
 * @returns throws as `readConfig` does
 */
export function createConfigReader(command: Command, path: string | undefined): () => CompiledConfig {
  let texts: ReadonlyMap<string, string> = new Map();
  let config: CompiledConfig | undefined;
  const isAsBefore = (): boolean => [...texts].every(([file, text]) => textOf(file) === text);
  return () => {
    if (config && isAsBefore()) return config;
    const found = new Map<string, string>();
    config = readConfig(command, path, (file, text) => found.set(file, text));
    texts = found;
    return config;
  };
}

/** @returns undefined for a file that cannot be read */
function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/**
 * Loads the configuration from flags, environment and file.
 *
 * @param onRead is given each file that was read, and its text
 * @throws EspalierError `config_invalid` or `config_unreadable`
 */
export function readConfig(
  command: Command,
  path: string | undefined,
  onRead: (file: string, text: string) => void = () => {},
): CompiledConfig {
  const values = command.opts<Record<string, string | string[]>>();
  const { configFolder } = command.opts<{ configFolder?: string }>();
  const flags: Record<string, string | readonly string[]> = {};
  for (const flag of flagCatalogue.flatMap((entry) => [entry.flag, ...entry.aliases])) {
    const value = values[optionName(flag)];
    if (value !== undefined) flags[flag] = value;
  }
  const noted = (file: string, text: string): string => {
    onRead(file, text);
    return text;
  };
  return loadConfig({
    ...(path === undefined ? {} : { file: { path, text: noted(path, readConfigFile(path)), folder: configFolder } }),
    env: process.env,
    readText: (file) => noted(file, readSecretFile(file)),
    flags: flags as FlagValues,
  });
}

function alsoText(aliases: readonly string[]): string {
  return aliases.length === 0 ? "" : ` Also ${aliases.join(", ")}.`;
}

/** Commander's name for a flag's value: `--listen-port` is `listenPort`. */
function optionName(flag: string): string {
  return new Option(`${flag} <value>`).attributeName();
}

/** Maximum size in bytes of a file that the configuration includes by `${file:PATH}`. */
const maxSecretBytes = 65_536;

/** @throws Error with the reason */
function readSecretFile(path: string): string {
  const { size } = statSync(path);
  if (size > maxSecretBytes) throw new Error(`it has ${size} bytes, more than ${maxSecretBytes}`);
  return readFileSync(path, "utf8");
}

function readConfigFile(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new EspalierError("config_unreadable", `Cannot read ${path}: ${reason}`, { cause: error });
  }
}
