import { afterEach, beforeEach, expect, test } from "vitest";
import { chat, type Json, post } from "./client.ts";
import { createRig, type Rig } from "./rig.ts";

let rig: Rig;
beforeEach(() => {
  rig = createRig();
});
afterEach(() => rig.close());

test("a recording tells which agent of which session a request is from, and nothing of what they are called", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const controller = new AbortController();
  const stream = await fetch(`${router.adminUrl}/admin/recording`, {
    headers: { "x-espalier-salt": "07".repeat(16) },
    signal: controller.signal,
  });
  const claude = { "x-claude-code-session-id": "the session" };
  const explore = { ...claude, "x-claude-code-agent-id": "explore" };
  const deeper = {
    ...claude,
    "x-claude-code-agent-id": "deeper",
    "x-claude-code-parent-agent-id": "explore",
  };
  for (const headers of [claude, explore, deeper]) await post(`${router.url}/v1/chat/completions`, chat(), headers);
  const requests: Json[] = [];
  let text = "";
  for await (const piece of stream.body!) {
    text += Buffer.from(piece).toString("utf8");
    const lines = text.split("\n").slice(0, -1);
    requests.splice(0, requests.length, ...lines.map((line) => JSON.parse(line) as Json).filter((line) => line.model));
    if (requests.length === 3) break;
  }
  controller.abort();
  const [own, agent, below] = requests;
  expect(new Set(requests.map(({ session }) => session)).size).toBe(1);
  expect([own?.agent, own?.parentAgent, agent?.parentAgent]).toEqual([null, null, null]);
  expect([typeof agent?.agent, below?.parentAgent]).toEqual(["number", agent?.agent]);
  expect(below?.agent).not.toBe(agent?.agent);
  for (const { durationMs } of requests) expect(durationMs).toBeGreaterThanOrEqual(0);
  expect(text).not.toMatch(/explore|deeper|the session/);
});
