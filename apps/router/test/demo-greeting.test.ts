import { systemClock } from "@espalier/core";
import { loadRequestTokens, shippedModelFolder } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { demoQuestion } from "../src/demo/describe-demo.ts";

const blockTokens = 16;

/** The greeting's request showed a hit of 0 wherever it was sent again: its prompt was one block long, which is never a hit. */
test("the request of the greeting is long enough for a cache to have some blocks of it", async () => {
  const tokensOf = await loadRequestTokens(shippedModelFolder(), systemClock);
  const tokens = tokensOf({ endpoint: "chat", fields: { messages: [{ role: "user", content: demoQuestion }] } });
  expect(tokens?.length).toBeGreaterThan(4 * blockTokens);
  expect(demoQuestion, "it stands in the JSON of a shell's word").not.toMatch(/["'\\]/);
});
