import { configSchema } from "./schema/config-schema.ts";
import { descriptionOf, shapeOf } from "./schema/shape.ts";
import { defaultText, typeText } from "./setting-texts.ts";
import { settingPath, settings } from "./settings.ts";

/** One command-line flag. */
export interface FlagEntry {
  /** `--listen-port` */
  readonly flag: string;
  /** Flags of other routers that mean the same, and are accepted in its place. */
  readonly aliases: readonly string[];
  /** Where the value goes: `listen.port`. */
  readonly path: string;
  /** What the value is, in words: `an integer from 0 to 65535`. */
  readonly type: string;
  readonly description: string;
  /** As text; undefined when there is none. */
  readonly default: string | undefined;
  /** Heading under which `--help` lists it. */
  readonly group: string;
  /** Whether it may be given more than once, each time with one element of a list. */
  readonly isRepeatable: boolean;
}

const generalGroup = "General";

/** Every flag, in the order of the schema. All of them take a value. */
export const flagCatalogue: readonly FlagEntry[] = settings.flatMap((setting) =>
  setting.outside
    ? [
        {
          flag: setting.outside.flag,
          aliases: setting.outside.aliasFlags.map(({ flag }) => flag),
          path: settingPath(setting),
          type: typeText(setting),
          description: setting.description,
          default: defaultText(setting),
          group: groupOf(setting.keys),
          isRepeatable: setting.shape.form === "list",
        },
      ]
    : [],
);

function groupOf([top = ""]: readonly string[]): string {
  const root = shapeOf(configSchema);
  const schema = root.form === "section" ? root.properties[top] : undefined;
  return schema && shapeOf(schema).form === "section" ? titleOf(top, descriptionOf(schema)) : generalGroup;
}

function titleOf(key: string, description: string): string {
  return `${key.charAt(0).toUpperCase()}${key.slice(1).replaceAll("-", " ")}: ${description}`;
}
