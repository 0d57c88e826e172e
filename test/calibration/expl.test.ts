import { test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import { simulated } from "./both-ways.ts";
import { conversationTrace } from "./trace.ts";
test("expl", async () => {
  const path = temporaryFile("trace.jsonl", conversationTrace(11));
  for (const [policy, routers] of [["round_robin", 1], ["least_work", 1]] as const) for (const seed of policy === "round_robin" ? [1] : [1, 2, 3, 4, 5]) {
    process.env.SEED = String(seed);
    const s = await simulated(path, { policy, routers });
    console.log(process.env.BLOCKS, policy, routers, seed, JSON.stringify(s));
  }
}, 120000);
