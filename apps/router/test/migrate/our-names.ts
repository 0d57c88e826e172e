import { policyCatalogue } from "@espalier/policies";
import { configJsonSchema, describeMetrics, flagCatalogue } from "@espalier/server";

type Section = Readonly<Record<string, unknown>>;

const isSection = (value: unknown): value is Section =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Every setting of ours: `engines[].kv-pull`. */
export const ourSettings: ReadonlySet<string> = new Set(settingsOf(configJsonSchema, ""));

function settingsOf(schema: unknown, path: string): readonly string[] {
  if (!isSection(schema)) return [];
  const { anyOf, properties, items, additionalProperties } = schema;
  return [
    path,
    ...(Array.isArray(anyOf) ? anyOf.flatMap((form) => settingsOf(form, path)) : []),
    ...Object.entries(isSection(properties) ? properties : {}).flatMap(([key, below]) =>
      settingsOf(below, path === "" ? key : `${path}.${key}`),
    ),
    ...settingsOf(items, `${path}[]`),
    ...settingsOf(additionalProperties, `${path}.*`),
  ];
}

/** Every word of their names. */
export const ourWords: ReadonlySet<string> = new Set(
  [...ourSettings].flatMap((path) => path.split(/[^a-z0-9]+/)).filter((word) => word !== ""),
);

const metrics = new Set(describeMetrics().map(({ name }) => name));
const policies: ReadonlySet<string> = new Set(Object.keys(policyCatalogue));
const lastKeys = new Set([...ourSettings].map((path) => path.split(".").at(-1)));
const flags = new Set(flagCatalogue.map(({ flag }) => flag));

/** Headers and labels that a router reads or writes, its probes, what a plugin has, and words of commands and files. */
const others =
  /^(x-espalier-[a-z-]+|x-request-id|x-smg-[a-z-]+|espalier\.dev\/[a-z-]+|llm-d\.ai\/role|topology\.kubernetes\.io\/region|\/[a-z/0-9]+|ESPALIER_[A-Z_]+|auth|batch|migrate|node --cpu-prof|kv@ID@MODEL|- url: http:\/\/ADDRESS:PORT)$/;

/** What a text names in backticks that is nothing of ours. */
export function unknownNames(text: string): readonly string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name).filter((name) => !isOurs(name));
}

function isOurs(name: string): boolean {
  const [, path = "", value] = /^([a-z][a-z0-9.[\]*-]*)(?:: (.*))?$/.exec(name) ?? [];
  if (path === "policy" && value !== undefined) return policies.has(value);
  if (ourSettings.has(path) || policies.has(name) || metrics.has(name) || flags.has(name)) return true;
  // `role` of what is found
  return (!path.includes(".") && lastKeys.has(path)) || others.test(name);
}

/** The settings of ours that a text names. */
export const namedSettings = (text: string): readonly string[] =>
  [...text.matchAll(/`([a-z][a-z0-9.[\]*-]*)/g)].map(([, name = ""]) => name).filter((name) => ourSettings.has(name));
