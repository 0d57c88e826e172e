import { EspalierError } from "@espalier/core";
import { type CompiledConfig, type ConfigSources, loadConfig } from "../../src/config/index.ts";

/** Sources other than the file, whose text stands for itself. */
type Outside = Omit<ConfigSources, "file">;

/** Loads a file named `e.yaml`. */
export function load(text: string, outside: Outside = {}): CompiledConfig {
  return loadConfig({ file: { path: "e.yaml", text }, ...outside });
}

/** The lines of the error that loading gives; none when it succeeds. */
export function problemsOf(text: string, outside: Outside = {}): string[] {
  return problemsIn(() => load(text, outside));
}

/** The lines of the `config_invalid` that `action` throws. Any other error is thrown on. */
export function problemsIn(action: () => unknown): string[] {
  try {
    action();
  } catch (error) {
    if (error instanceof EspalierError && error.code === "config_invalid") return error.message.split("\n");
    throw error;
  }
  return [];
}
