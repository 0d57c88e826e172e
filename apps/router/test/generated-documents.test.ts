import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedDocuments } from "../src/generated-documents.ts";

const documents = Object.entries(await generatedDocuments());

test.each(documents)("docs/%s is what the code says; `npm run docs` renews it", (name, text) => {
  const path = new URL(`../../../docs/${name}`, import.meta.url);
  expect(readFileSync(path, "utf8")).toBe(text);
});

test("every document has content from the code", () => {
  const textOf = (name: string): string => documents.find(([found]) => found === name)?.[1] ?? "";
  expect(textOf("ERRORS.md")).toContain("`model_not_found` | 404");
  expect(textOf("CONFIGURATION.md")).toContain("`--listen-port`");
  expect(textOf("POLICIES.md")).toContain("## consistent_hashing");
  expect(textOf("PRESETS.md")).toContain("## a10g-7b");
  expect(textOf("METRICS.md")).toContain("`espalier_requests_total` | counter | endpoint, model, status, outcome");
  expect(textOf("reference/migrate-llm-d.md")).toContain("| `no-hit-lru-scorer` | `policy.no-hit-lru-weight` |  |");
  expect(textOf("reference/migrate-litellm.md")).toContain(
    "| `general_settings.master_key` | `migrate` | `api-keys` |  |",
  );
  expect(textOf("reference/wire-layouts.md")).toContain("| `credits` | `[key:u32 paidMs:s(600,000)](32)` |");
  expect(JSON.parse(textOf("configuration.schema.json"))).toMatchObject({ type: "object" });
});
