import type { TSchema } from "typebox";
import { stringify } from "yaml";
import type { CompiledConfig } from "./compiled-config.ts";
import { foreignVariables, standardVariables } from "./overlay.ts";
import { isSection, needsValue } from "./read-tree.ts";
import { isReloadable } from "./reload.ts";
import { configSchema } from "./schema.ts";
import { descriptionOf, shapeOf, writtenNames } from "./schema-builders.ts";
import { defaultText, flagNames, type Setting, settingPath, settings, typeText } from "./settings.ts";
import { formatDuration, formatSize } from "./units.ts";

const introduction = `# Configuration

Generated from the schema by \`npm run docs\`. Values come from flags, then environment variables, then the file, then
the defaults; the first that has one counts. Sections are merged key by key, lists are replaced as a whole.

- The file is YAML 1.2 or JSON. Keys that are not listed here are refused. An empty value counts as absent.
- \`\${NAME}\` in a text of the file is replaced by the environment variable; \`\${NAME:-default}\` has a default for one that
  is unset or empty; \`\${file:PATH}\` by the text of a file, without line breaks at its end; \`$\${\` stands for \`\${\`. Inside \`{...}\` and \`[...]\`, YAML wants quotes around it: \`{ key: "\${NAME}" }\`.
- Durations are written \`500ms\`, \`2s\`, \`1.5m\` or \`1h\`; a bare number is in milliseconds.
- Sizes are written \`512B\`, \`32KiB\`, \`1.5MiB\`, \`1GiB\`, \`1kB\`, \`1MB\` or \`1GB\`; a bare number is in bytes.
- Lists in environment variables are separated by commas; flags for lists may be repeated. An empty variable counts as
  unset. A variable that begins with \`ESPALIER_\` and is not listed here is refused, unless the file names it.
- Where the meaning names what other routers call the same, that key is accepted in place of ours, and a flag of theirs in
  place of our flag: one of them, never both.
- What Kubernetes sets for Services (\`ESPALIER_SERVICE_HOST\`, \`ESPALIER_PORT_80_TCP\` and the like) is passed over.
- A running router reads all of it again when the file changes, on SIGHUP and on \`POST /admin/reload\`. What has "yes" under
  *reload* applies at once, without cutting an answer; other changes are named in the log and wait for a restart. What
  cannot be read or is not valid changes nothing.
- \`espalier check-config\` prints what a configuration comes to, with secrets masked.
`;

/** The text of `docs/CONFIGURATION.md`. */
export function renderConfigurationDocs(): string {
  const root = shapeOf(configSchema);
  const properties = root.form === "section" ? root.properties : {};
  const isSection = (key: string): boolean => {
    const schema = properties[key];
    return schema !== undefined && shapeOf(schema).form === "section";
  };
  const topOf = ({ keys }: Setting): string => keys[0] ?? "";
  const general = settings.filter((setting) => !isSection(topOf(setting)));
  const sections = Object.entries(properties)
    .filter(([key]) => isSection(key))
    .map(([key, schema]) => {
      const rows = settings.filter((setting) => topOf(setting) === key);
      return `## \`${key}\`\n\n${descriptionOf(schema)}\n\n${renderTable(rows)}`;
    });
  const standard = Object.entries(standardVariables).map(
    ([name, keys]) => [name, `Gives \`${keys.join(".")}\` where nothing else does.`] as const,
  );
  const foreign = [...Object.entries(foreignVariables), ...standard].map(
    ([name, meaning]) => `| \`${name}\` | ${meaning} |`,
  );
  return [
    introduction,
    `## General\n\n${renderTable(general)}`,
    ...sections,
    `## Other environment variables\n\n| variable | meaning |\n|---|---|\n${foreign.join("\n")}\n`,
  ].join("\n");
}

function describe({ description, aliases }: Setting): string {
  const others = aliases.map(({ name, of }) => `\`${name}\` in ${of}`);
  return others.length === 0 ? description : `${description} ${others.join(", ")}.`;
}

function renderTable(rows: readonly Setting[]): string {
  const lines = rows.map((setting) => {
    const { outside, isRequired } = setting;
    const standard = defaultText(setting);
    const cells = [
      `\`${settingPath(setting)}\``,
      typeText(setting),
      standard === undefined ? (isRequired ? "required" : "none") : `\`${standard}\``,
      outside ? `\`${outside.variable}\`` : "",
      outside
        ? flagNames(outside)
            .map((flag) => `\`${flag}\``)
            .join(", ")
        : "",
      isReloadable(settingPath(setting)) ? "yes" : "",
      describe(setting),
    ];
    return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  });
  return `| key | takes | default | variable | flag | reload | meaning |\n|---|---|---|---|---|---|---|\n${lines.join("\n")}\n`;
}

/** JSON Schema (draft 2020-12) of the file as people write it, for editors. */
export const configJsonSchema: Readonly<Record<string, unknown>> = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "Espalier configuration",
  ...writtenForm(configSchema),
};

/** Leaves out our own notes, and requires only what has no default; a shorthand is plain text instead of its section. */
function writtenForm(schema: TSchema): Record<string, unknown> {
  const { espalier: _, required: __, ...keywords } = schema as Readonly<Record<string, unknown>>;
  const shape = shapeOf(schema);
  if (shape.form === "leaf") return keywords;
  if (shape.form === "list") return { ...keywords, items: writtenForm(shape.items) };
  if (shape.form === "map") {
    const { patternProperties: ___, ...rest } = keywords;
    return { ...rest, additionalProperties: writtenForm(shape.values) };
  }
  const properties = Object.fromEntries(
    Object.entries(shape.properties).flatMap(([key, each]) =>
      writtenNames(shape.notes, key).map((name) => [name, writtenForm(each)]),
    ),
  );
  const required = Object.keys(shape.properties).filter(
    (key) => shape.required.has(key) && needsValue(shape.properties[key]!),
  );
  const section = { ...keywords, properties, ...(required.length > 0 ? { required } : {}) };
  const { shorthand } = shape.notes;
  if (shorthand === undefined) return section;
  const { description, ...alone } = section as Readonly<Record<string, unknown>>;
  return { description, anyOf: [properties[shorthand], alone] };
}

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
