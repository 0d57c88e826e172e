import { expect, test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import { expectSameShares, middleOf, replayed, simulatedRuns } from "./http-and-simulation.ts";
import { conversationTrace } from "./trace.ts";

/** Replays whose cached shares are averaged. */
const replayCount = 2;

/** Three routers, engines and a client on two cores wait for each other: only what was cached tells anything, not when. */
test("least_work, three routers: what processes cache over HTTP is what they cache in virtual time", async () => {
  const fleet = { policy: "least_work", routers: 3 } as const;
  const path = temporaryFile("trace.jsonl", conversationTrace(11));
  const runs = await simulatedRuns(path, fleet);
  const replays = await Promise.all(Array.from({ length: replayCount }, () => replayed(path, fleet)));
  for (const { infiniteCache } of replays) expect(infiniteCache).toBeCloseTo(middleOf(runs, "infiniteCache"), 9);
  expectSameShares(replays, runs);
}, 240_000);
