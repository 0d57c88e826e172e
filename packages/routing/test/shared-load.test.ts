import { expect, test } from "vitest";
import { scriptedTarget } from "./scripted-target.ts";
import { startPair } from "./tier-pair.ts";

test("load is told to the other router, which has none of its own counted with it, and ends with the request", async () => {
  const { one, other, until } = await startPair();
  const [mine, theirs] = [one.indexOf("engine-1"), other.indexOf("engine-1")];
  until(() => [one, other].every(({ tier }) => tier.backend.members().some(({ state }) => state === "alive")));
  const target = scriptedTarget(mine, "engine-1", { onLoad: () => one.publisher.changed(target) });
  const ticket = target.load.begin({ promptTokens: 100, uncachedTokens: 40, expectedOutputTokens: 20 });
  expect(until(() => other.tier.load.inFlight[theirs] === 1)).toBeLessThan(50);
  expect(other.tier.load.pendingPrefillTokens[theirs]).toBe(40);
  expect(one.tier.load.inFlight[mine]).toBe(0);
  ticket.firstToken();
  until(() => other.tier.load.decodeTokens[theirs] === 100);
  ticket.progress(10);
  expect(until(() => other.tier.load.decodeTokens[theirs] === 110)).toBeLessThan(100);
  ticket.end();
  expect(until(() => other.tier.load.inFlight[theirs] === 0)).toBeLessThan(100);
});
