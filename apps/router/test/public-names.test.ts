import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { errorCatalogue } from "@espalier/core";
import { policyCatalogue } from "@espalier/policies";
import { adminApi, configJsonSchema, describeMetrics } from "@espalier/server";
import { Command } from "commander";
import { expect, test } from "vitest";
import { loadEveryCommand } from "../src/commands/command-loaders.ts";

/**
 * What users write down elsewhere: in configurations, scripts, dashboards and clients. A name that changes here breaks them, so
 * it stands in CHANGELOG too. `npx vitest run --update=all FILE` writes the list.
 */
const root = join(import.meta.dirname, "..", "..", "..");

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly $ref?: string;
  readonly enum?: readonly unknown[];
}

/** Paths of all keys under a schema. `*` stands for any key, `[]` for an item. */
function keysOf(schema: Schema, path: string, found: Set<string>): Set<string> {
  for (const value of schema.enum ?? []) found.add(`${path} = ${value}`);
  for (const [key, inner] of Object.entries(schema.properties ?? {})) {
    found.add(`${path}${path && "."}${key}`);
    keysOf(inner, `${path}${path && "."}${key}`, found);
  }
  if (typeof schema.additionalProperties === "object") keysOf(schema.additionalProperties, `${path}.*`, found);
  if (schema.items) keysOf(schema.items, `${path}[]`, found);
  for (const either of [...(schema.anyOf ?? []), ...(schema.oneOf ?? [])]) keysOf(either, path, found);
  return found;
}

function flagsOf(command: Command, path: string): string[] {
  const own = command.options.filter(({ hidden }) => !hidden).map(({ flags }) => `${path} ${flags}`);
  const taken = command.registeredArguments.map((argument) => `${path} <${argument.name()}>`);
  return [path, ...taken, ...own, ...command.commands.flatMap((child) => flagsOf(child, `${path} ${child.name()}`))];
}

async function commandsAndFlags(): Promise<readonly string[]> {
  const program = new Command("espalier");
  for (const register of await loadEveryCommand()) register(program);
  return program.commands.flatMap((command) => flagsOf(command, command.name()));
}

const api = (await adminApi()) as unknown as {
  readonly paths: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
};

function entryPoints(): readonly string[] {
  const manifests = execFileSync("git", ["ls-files", "packages/*/package.json", "apps/*/package.json"], { cwd: root });
  return manifests
    .toString()
    .trim()
    .split("\n")
    .flatMap((path) => {
      const { name, exports, bin } = JSON.parse(readFileSync(join(root, path), "utf8"));
      const points = Object.keys(exports ?? {}).map((point) => join(name, point));
      return [...points, ...Object.keys(bin ?? {}).map((command) => `${name}: ${command}`)];
    });
}

/** Headers with our prefix, wherever sources name one. */
function headers(): readonly string[] {
  const lines = execFileSync(
    "git",
    ["grep", "-ohE", '"x-espalier-[a-z-]*[a-z]"', "--", "packages/*/src/*", "apps/*/src/*"],
    {
      cwd: root,
    },
  );
  return [...new Set(lines.toString().replaceAll('"', "").trim().split("\n"))];
}

test("public names are those that the list has", async () => {
  const sections: Readonly<Record<string, Iterable<string>>> = {
    "commands, arguments and flags": await commandsAndFlags(),
    "configuration keys": keysOf(configJsonSchema as Schema, "", new Set()),
    policies: Object.entries(policyCatalogue).flatMap(([name, { options }]) => [
      name,
      ...options.map((option) => `${name} ${option.name}`),
    ]),
    headers: headers(),
    metrics: describeMetrics().map(({ name, type, labels }) => `${name} ${type} ${(labels ?? []).join(",")}`.trim()),
    "error codes": Object.entries(errorCatalogue).map(([code, { status }]) => `${code} ${status}`),
    "admin requests": Object.entries(api.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    ),
    "admin fields": Object.entries(api.components.schemas).flatMap(([name, schema]) => [
      ...keysOf(schema, name, new Set()),
    ]),
    "entry points": entryPoints(),
  };
  const text = Object.entries(sections).map(([title, names]) => `# ${title}\n${[...names].sort().join("\n")}\n`);
  await expect(text.join("\n")).toMatchFileSnapshot("golden/public-names.txt");
});
