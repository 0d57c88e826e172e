import type { Environment } from "./interpolate.ts";
import { isSection } from "./read-tree.ts";

/** Variables of the OpenTelemetry specification, which give a value where nothing else does, and where it goes. */
export const standardVariables: Readonly<Record<string, readonly string[]>> = {
  OTEL_EXPORTER_OTLP_ENDPOINT: ["tracing", "endpoint"],
  OTEL_EXPORTER_OTLP_HEADERS: ["tracing", "headers"],
  OTEL_SERVICE_NAME: ["tracing", "service-name"],
};

interface StandardValue {
  readonly keys: readonly string[];
  readonly value: string;
  readonly from: string;
}

/** Values of standard variables for what a tree does not say. An empty variable counts as unset. */
export function readStandardVariables(env: Environment, tree: unknown): readonly StandardValue[] {
  return Object.entries(standardVariables).flatMap(([from, keys]) => {
    const value = env[from] ?? "";
    return value === "" || isSaid(tree, keys) ? [] : [{ keys, value, from }];
  });
}

function isSaid(tree: unknown, [key, ...rest]: readonly string[]): boolean {
  if (key === undefined) return tree !== undefined && tree !== null;
  if (tree === undefined || tree === null) return false;
  // What is no section is a mistake that is reported as such.
  return !isSection(tree) || (Object.hasOwn(tree, key) && isSaid(tree[key], rest));
}
