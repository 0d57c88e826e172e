import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { flagCatalogue } from "../src/settings.ts";

const text = readFileSync(new URL("../../../docs/MIGRATION.md", import.meta.url), "utf8");

/** Flags in the first column of the table behind a sentence. An abbreviated one stands for its beginning too. */
function flagsBehind(sentence: string): readonly string[] {
  const [, behind = ""] = text.split(sentence);
  const rows = behind.split("\n").filter((line) => line.startsWith("|"));
  const table = rows.slice(2, Math.max(2, behind.slice(behind.indexOf("|")).split("\n\n")[0]!.split("\n").length));
  return table.flatMap((row) => row.split("|")[1]!.match(/--[a-z][a-z0-9-]+/g) ?? []);
}

/** Seven flags that the page listed as taken were unknown options. */
test("flags of other routers that MIGRATION says are taken are known, and those that it says are refused are not", () => {
  const known = new Set(flagCatalogue.flatMap(({ flag, aliases }) => [flag, ...aliases]));
  const taken = flagsBehind("takes these flags of theirs as they are");
  expect(taken.length).toBeGreaterThan(20);
  expect(taken.filter((flag) => !known.has(flag))).toEqual([]);
  const refused = flagsBehind("These are refused as unknown");
  expect(refused.length).toBeGreaterThan(10);
  expect(refused.filter((flag) => known.has(flag))).toEqual([]);
});
