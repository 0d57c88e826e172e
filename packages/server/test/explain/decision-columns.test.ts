import { DecisionLog } from "@espalier/routing";
import { expect, test } from "vitest";
import { createDecisionColumns } from "../../src/decisions/decision-columns.ts";
import type { DescribedDecision } from "../../src/decisions/decision-feed.ts";

const pulling: DescribedDecision = {
  ...{ atMs: 1_790_000_000_123, endpoint: "chat", model: "m", policy: "predicted_latency", reason: "least_time" },
  ...{ target: "e", promptTokens: 40_000_001, matchedTokens: 30_000_003, class: "batch", queuedMs: 17, attempt: 2 },
  prefillEngine: "p",
  pull: { from: "f", tokens: 1_024, ms: 12.345_678_9, computeMs: 98.765_432_1 },
};
const plain: DescribedDecision = {
  ...{ atMs: 7, endpoint: "messages", model: "n", policy: "rotation", reason: "rotation", target: "g" },
  ...{ promptTokens: 0, matchedTokens: 0, class: null, queuedMs: 0, attempt: 1, prefillEngine: null, pull: null },
};

test("decisions are read as they were written, whatever was in their place before", () => {
  const log = new DecisionLog(2, createDecisionColumns(2));
  const written = [pulling, plain, plain, pulling, { ...plain, target: "h" }];
  for (const [at, facts] of written.entries()) log.name(undefined, `id-${at}`, facts);
  expect(log.find("id-2")).toEqual([]);
  expect(log.find("id-3").map(({ facts }) => facts)).toEqual([pulling]);
  expect(log.find("id-4").map(({ facts }) => facts)).toEqual([{ ...plain, target: "h" }]);
});
