import type { TSchema } from "typebox";
import { stringify } from "yaml";
import type { CompiledConfig } from "./compiled-config.ts";
import { isSection } from "./read-tree.ts";
import { configSchema } from "./schema/config-schema.ts";
import { shapeOf } from "./schema/shape.ts";
import { formatDuration, formatSize } from "./units.ts";

/** The configuration as a file would say it, every default written out, durations and sizes as text, secrets masked. */
export function describeConfig({ effective }: CompiledConfig): Readonly<Record<string, unknown>> {
  return write(configSchema, effective) as Readonly<Record<string, unknown>>;
}

/** `describeConfig` as YAML. Masked secrets apart, it reads back as the same configuration. */
export function renderConfigYaml(config: CompiledConfig): string {
  return stringify(describeConfig(config));
}

function write(schema: TSchema, value: unknown): unknown {
  const shape = shapeOf(schema);
  if (shape.form === "leaf") {
    if (typeof value !== "number") return value;
    if (shape.notes.kind === "duration") return formatDuration(value);
    return shape.notes.kind === "size" ? formatSize(value) : value;
  }
  if (shape.form === "list") return Array.isArray(value) ? value.map((item) => write(shape.items, item)) : value;
  if (!isSection(value)) return value;
  const schemaOf = (key: string): TSchema | undefined =>
    shape.form === "section" ? shape.properties[key] : shape.values;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => {
      const schemaOfItem = schemaOf(key);
      return [key, schemaOfItem ? write(schemaOfItem, item) : item];
    }),
  );
}
