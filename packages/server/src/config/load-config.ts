import { dirname, resolve } from "node:path";
import { isJsonObject } from "@espalier/core";
import { type CompiledConfig, compileConfig } from "./compiled-config.ts";
import { crossCheck } from "./cross-checks.ts";
import { type Environment, interpolate, type ReadText } from "./interpolate.ts";
import {
  applyOverlay,
  type FlagValues,
  type Origins,
  readEnvironment,
  readFlags,
  readStandardVariables,
} from "./overlay.ts";
import { formatPath, type Path, type Problem, problemsError } from "./problems.ts";
import { readTree } from "./read-tree.ts";
import { type ConfigTree, configSchema } from "./schema.ts";
import { parseYaml } from "./yaml-document.ts";

interface ConfigFile {
  /** Names the file in messages. */
  readonly path: string;
  /** YAML 1.2 or JSON. */
  readonly text: string;
  /** Where relative paths in it start: its own folder by default. */
  readonly folder?: string | undefined;
}

export interface ConfigSources {
  readonly file?: ConfigFile;
  /** All variables of the process. `ESPALIER_...` and those that the file refers to are read. */
  readonly env?: Environment;
  /** Reads the files of `${file:PATH}`; gets an absolute path. Without it, none is read. */
  readonly readText?: ReadText;
  /** By flag, dashes included, as `flagCatalogue` lists them. */
  readonly flags?: FlagValues;
  /** Names of the policies that the program gives to its router, beyond those of the catalogue and of plugins. */
  readonly policies?: readonly string[];
}

/**
 * Loads the configuration from flags, environment, file and defaults, in this order of precedence. Sections are merged
 * key by key; a list replaces the whole list. A relative path in the file is read from the file's folder, one of a flag or a
 * variable from the current folder.
 *
 * @throws EspalierError `config_invalid` whose message has one line per problem: path, value, expected value, and where
 * it was written. Secrets are masked.
 *
 * @example
 * const config = loadConfig({ env: process.env, flags: { "--engine": ["http://127.0.0.1:8000"] } });
 */
export function loadConfig({ file, env = {}, flags = {}, readText, policies = [] }: ConfigSources): CompiledConfig {
  const document = file && parseYaml(file.text, file.path);
  const folder = file ? (file.folder ?? folderOfFile(file.path)) : ".";
  const filled = interpolate(document?.value, env, readText && ((path) => readText(resolve(folder, path))));
  const fromEnvironment = readEnvironment(env, filled.variables);
  const fromFlags = readFlags(flags);
  const origins: Origins = new Map();
  const withEnvironment = applyOverlay(filled.value, fromEnvironment, origins);
  const explicit = applyOverlay(withEnvironment, fromFlags, origins);
  const written = applyOverlay(explicit, { values: readStandardVariables(env, explicit) }, origins);

  const problems: Problem[] = [...filled.problems, ...fromEnvironment.problems, ...fromFlags.problems];
  const folderOf = (path: Path): string => (originOf(path, origins) === undefined ? folder : ".");
  const read = readTree(configSchema, written, [], { ...filled, problems, folderOf });
  const tree = withMaxOpen(read as ConfigTree, written);
  const isSound = (key: string): boolean => !problems.some(({ path }) => path.length === 0 || path[0] === key);
  problems.push(...crossCheck(tree, isSound, policies));
  if (problems.length > 0) throw problemsError(problems, (path) => originOf(path, origins) ?? document?.locate(path));
  const isFileBlank = document !== undefined && (document.value ?? null) === null;
  return compileConfig(tree, { env, isFileBlank });
}

/** A configuration from a pipe, such as `/dev/stdin`, has no folder of its own. */
function folderOfFile(path: string): string {
  return path.startsWith("/dev/") ? "." : dirname(path);
}

/** `breaker.max-open` is at least `breaker.open`, unless it was set explicitly. */
function withMaxOpen(tree: ConfigTree, written: unknown): ConfigTree {
  // A file that could not be read has no sections.
  const breaker = isJsonObject(tree) ? tree.breaker : undefined;
  const said = isJsonObject(written) ? written.breaker : undefined;
  const isSaid = isJsonObject(said) && said["max-open"] !== undefined;
  if (isSaid || !isJsonObject(breaker) || !(breaker.open > breaker["max-open"])) return tree;
  return { ...tree, breaker: { ...breaker, "max-open": breaker.open } };
}

/** The flag or variable that set the value at a path, or the enclosing list or section. */
function originOf(path: Path, origins: Origins): string | undefined {
  for (let length = path.length; length > 0; length--) {
    const origin = origins.get(formatPath(path.slice(0, length)));
    if (origin !== undefined) return origin;
  }
  return undefined;
}
