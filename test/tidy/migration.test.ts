import { readdirSync, readFileSync } from "node:fs";
import { flagCatalogue } from "@espalier/server";
import { expect, test } from "vitest";

const docs = new URL("../../docs/", import.meta.url);
const pages = readdirSync(new URL("reference/", docs)).filter((name) => name.startsWith("migrate-"));
const text = ["MIGRATION.md", ...pages.map((name) => `reference/${name}`)]
  .map((name) => readFileSync(new URL(name, docs), "utf8"))
  .join("\n");

const named = new Set([...text.matchAll(/`(--[a-z][a-z0-9-]*)[ `]/g)].map(([, flag = ""]) => flag));

test("the guide names every flag of other routers that is accepted", () => {
  const accepted = flagCatalogue.flatMap(({ aliases }) => aliases).filter((flag) => !isDynamo(flag));
  expect(accepted.filter((flag) => !named.has(flag))).toEqual([]);
});

test("our flags that the guide names are there", () => {
  const ours = new Set(flagCatalogue.map(({ flag }) => flag));
  for (const flag of ["--engine", "--policy", "--session-key"]) expect([flag, ours.has(flag)]).toEqual([flag, true]);
});

/** The guide sends to the documents for these. */
function isDynamo(flag: string): boolean {
  return /^--(router-|kv-cache-block-size|shared-cache-multiplier)/.test(flag);
}
