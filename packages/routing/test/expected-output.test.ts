import { expect, test } from "vitest";
import { expectedOutputTokens, usualOutputTokens } from "../src/work/answer-pace.ts";

test.each([
  [{}, 256],
  [{ maxOutputTokens: undefined, choices: 3 }, 768],
  [{ maxOutputTokens: 4_096 }, 4_096],
  [{ maxOutputTokens: 10, choices: 2 }, 20],
])("of %o: %d tokens", (request, expected) => {
  expect(expectedOutputTokens(request)).toBe(expected);
  expect(usualOutputTokens).toBe(256);
});
