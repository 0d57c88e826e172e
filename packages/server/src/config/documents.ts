import { formatDuration, formatSize } from "@espalier/core";
import type { TSchema } from "typebox";
import { stringify } from "yaml";
import type { CompiledConfig } from "./compiled-config.ts";
import { foreignVariables, standardVariables } from "./overlay.ts";
import { needsValue } from "./read-tree.ts";
import { isReloadable } from "./reload.ts";
import { configSchema } from "./schema.ts";
import { descriptionOf, mapTree, notesOf, shapeOf, writtenNames } from "./schema-builders.ts";
import { defaultText, flagNames, type Setting, settingPath, settings, typeText } from "./settings.ts";

const introduction = `# Configuration

Generated from the schema by \`npm run docs\`. A value comes from a flag, an environment variable, the file or the default,
in this order of precedence. Sections are merged key by key; a list replaces the whole list.

- The file is YAML 1.2 or JSON. Unknown keys are refused. An empty value counts as absent.
- In strings of the file, \`\${NAME}\` is replaced by the environment variable; \`\${NAME:-default}\` uses the default if the
  variable is unset or empty; \`\${file:PATH}\` is replaced by the content of a file, without trailing line breaks; \`$\${\`
  stands for \`\${\`. Inside \`{...}\` and \`[...]\`, YAML requires quotes: \`{ key: "\${NAME}" }\`.
- Durations are written \`500ms\`, \`2s\`, \`1.5m\` or \`1h\`. A number without a unit is refused, apart from 0.
- Sizes are written \`512B\`, \`32KiB\`, \`1.5MiB\`, \`1GiB\`, \`1kB\`, \`1MB\` or \`1GB\`; a bare number is in bytes.
- A relative path in the file starts at the file's folder, also in \`\${file:PATH}\`. One of a flag or a variable starts at the current folder.
- In environment variables, the elements of a list are separated by commas; a flag for a list may be repeated. An empty
  variable counts as unset. An unknown variable that begins with \`ESPALIER_\` is refused, unless the file refers to it.
- Where the meaning lists a name from another router, that name is accepted as a key or flag in place of ours, but not
  together with it.
- The variables that Kubernetes sets for Services (\`ESPALIER_SERVICE_HOST\`, \`ESPALIER_PORT_80_TCP\` and the like) are
  ignored.
- A running router reloads the configuration when the file changes, on SIGHUP and on \`POST /admin/reload\`. A change to a
  setting with "yes" under *reload* applies at once and interrupts no answer; other changes are logged and need a restart.
  A configuration that cannot be read or is not valid changes nothing.
- \`espalier check-config\` prints the resulting configuration, with secrets masked.
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
    ([name, keys]) => [name, `Sets \`${keys.join(".")}\` if nothing else does.`] as const,
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
  const lines: string[] = [];
  for (let at = 0; at < rows.length; at += 1) {
    const first = rows[at]!;
    const count = repeatedFrom(rows, at);
    if (count < minRepeated) {
      lines.push(renderRow(first));
      continue;
    }
    const last = rows[at + count - 1]!;
    const reload = isReloadable(settingPath(first)) ? "yes" : "";
    const same = `\`${sectionOf(first)}\` takes the keys \`${first.keys.at(-1)}\` to \`${last.keys.at(-1)}\` of \`${sectionOf(describedAt(first)!)}\`.`;
    lines.push(`| \`${sectionOf(first)}.*\` |  |  |  |  | ${reload} | ${same} |`);
    at += count - 1;
  }
  return `| key | takes | default | variable | flag | reload | meaning |\n|---|---|---|---|---|---|---|\n${lines.join("\n")}\n`;
}

/** Fewer repeated rows are shown in full. */
const minRepeated = 5;

const sectionOf = ({ keys }: Setting): string => settingPath({ keys: keys.slice(0, -1) });

/** All that a row says, apart from the section and the names outside the file. */
const rowKeyOf = (setting: Setting): string =>
  JSON.stringify([setting.keys.at(-1), typeText(setting), defaultText(setting), describe(setting)]);

/** The settings that are documented for other sections as well: of the shortest path, or the first one. */
const described: ReadonlyMap<string, Setting> = new Map(
  [...settings]
    .sort((a, b) => b.keys.length - a.keys.length || settings.indexOf(b) - settings.indexOf(a))
    .map((setting) => [rowKeyOf(setting), setting]),
);

/** The setting of another section that has the same row; undefined for one whose row is its own. */
function describedAt(setting: Setting): Setting | undefined {
  const found = described.get(rowKeyOf(setting));
  return found === setting || setting.outside !== undefined ? undefined : found;
}

/** The number of rows from here on that another section has in the same order. */
function repeatedFrom(rows: readonly Setting[], from: number): number {
  const first = describedAt(rows[from]!);
  if (first === undefined) return 0;
  let count = 1;
  for (; from + count < rows.length; count += 1) {
    const row = rows[from + count]!;
    const other = describedAt(row);
    if (other === undefined || sectionOf(row) !== sectionOf(rows[from]!) || sectionOf(other) !== sectionOf(first))
      break;
  }
  return count;
}

function renderRow(setting: Setting): string {
  const { outside, isRequired } = setting;
  const standard = defaultText(setting);
  const cells = [
    `\`${settingPath(setting)}\``,
    typeText(setting).replace(/(?<=\bone of )[\w.-]+(?:, [\w.-]+)*/, (values) => values.replace(/[\w.-]+/g, "`$&`")),
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
}

/** JSON Schema (draft 2020-12) of the configuration file, for editors. */
export const configJsonSchema: Readonly<Record<string, unknown>> = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "Espalier configuration",
  ...writtenForm(configSchema),
};

/** Drops our own notes, and requires only keys without a default. With a shorthand, a plain string is allowed too. */
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

/** The configuration in the form of a file, with all defaults, durations and sizes as text, and secrets masked. */
export function describeConfig({ effective }: CompiledConfig): Readonly<Record<string, unknown>> {
  return mapTree(configSchema, effective, (schema, value) => {
    if (typeof value !== "number") return value;
    const { kind } = notesOf(schema);
    return kind === "duration" ? formatDuration(value) : kind === "size" ? formatSize(value) : value;
  }) as Readonly<Record<string, unknown>>;
}

/** Plain data as YAML, in the style of `renderConfigYaml`. */
export function writeYaml(value: unknown): string {
  return stringify(value);
}

/** `describeConfig` as YAML. Apart from masked secrets, it reads back as the same configuration. */
export function renderConfigYaml(config: CompiledConfig): string {
  return writeYaml(describeConfig(config));
}
