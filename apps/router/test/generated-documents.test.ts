import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedDocuments, withLayouts, withMigrationTables } from "../src/generated-documents.ts";

const documents = Object.entries(await generatedDocuments());

test.each(documents)("docs/%s is what the code says; `npm run docs` renews it", (name, text) => {
  const path = new URL(`../../../docs/${name}`, import.meta.url);
  expect(readFileSync(path, "utf8")).toBe(text);
});

test("MIGRATION.md has the flags and plugins that translations know; `npm run docs` renews it", () => {
  const guide = readFileSync(new URL("../../../docs/MIGRATION.md", import.meta.url), "utf8");
  expect(withMigrationTables(guide)).toBe(guide);
  expect(guide).toContain("| `no-hit-lru-scorer` | `policy.no-hit-lru-weight` |  |");
  expect(() => withMigrationTables("# A guide")).toThrow("no line <!-- flags of SGLang");
});

test("PROTOCOL.md has the layouts of frames and notes as they are declared; `npm run docs` renews it", () => {
  const protocol = readFileSync(new URL("../../../docs/PROTOCOL.md", import.meta.url), "utf8");
  expect(withLayouts(protocol)).toBe(protocol);
  expect(protocol).toContain("| `rents` | `[key:u32 paidMs:s(600,000)](32)` |");
  expect(() => withLayouts("# A protocol")).toThrow("no line <!-- layouts of membership");
});

test("every document has content from the code", () => {
  const textOf = (name: string): string => documents.find(([found]) => found === name)?.[1] ?? "";
  expect(textOf("ERRORS.md")).toContain("`model_not_found` | 404");
  expect(textOf("CONFIGURATION.md")).toContain("`--listen-port`");
  expect(textOf("POLICIES.md")).toContain("## consistent_hashing");
  expect(textOf("PRESETS.md")).toContain("## a10g-7b");
  expect(textOf("METRICS.md")).toContain("`espalier_requests_total` | counter | endpoint, model, status, outcome");
  expect(JSON.parse(textOf("configuration.schema.json"))).toMatchObject({ type: "object" });
});
