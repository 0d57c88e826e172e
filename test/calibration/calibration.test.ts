import { test } from "vitest";
import { temporaryFile } from "../e2e/files.ts";
import { replayed, simulated } from "./both-ways.ts";
import { conversationTrace } from "./trace.ts";

test.each([["round_robin", 1], ["least_work", 1], ["least_work", 3]] as const)("%s %d", async (policy, routers) => {
  const path = temporaryFile("trace.jsonl", conversationTrace(11));
  const t0 = performance.now();
  const s = await simulated(path, { policy, routers });
  const t1 = performance.now();
  console.log(policy, routers, "sim", t1 - t0, s);
  if (process.env.SIMONLY) return;
  const r = await replayed(path, { policy, routers });
  console.log(policy, routers, "real", performance.now() - t1, r);
});
