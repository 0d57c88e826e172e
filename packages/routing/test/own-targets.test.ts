import { createSeededRandom } from "@espalier/core";
import { createPolicy, type Policy } from "@espalier/policies";
import type { SharedLoad } from "@espalier/shared-tree";
import { expect, test } from "vitest";
import type { PeerTraffic } from "../src/peer-traffic.ts";
import { createTargetSelector } from "../src/select-target.ts";
import { knowledgeRig } from "./prefix/knowledge-rig.ts";
import { scriptedTarget } from "./scripted-target.ts";

const features = { promptTokens: 160, expectedOutputTokens: 10, sessionKey: undefined, prefixKey: undefined };

/** What a policy learns of a router's own targets, when the router owns the first ones of four. */
function seenBy({
  owned,
  routers = 2,
  isMeeting = false,
  linkDelayMs = 0,
}: {
  owned: number;
  routers?: number;
  isMeeting?: boolean;
  linkDelayMs?: number;
}) {
  const { knowledge } = knowledgeRig({ quality: "complete" });
  const none = new Float64Array(4);
  const load = {
    ...{
      inFlight: none,
      pendingPrefillTokens: none,
      decodeTokens: none,
      pendingWorkMs: none,
      activeTokens: none,
      lendingTokens: none,
      yieldingInFlight: none,
      answers: none,
    },
    ...{
      sentWorkMs: none,
      computedMs: none,
      pendingSinceMs: none,
      sinceMs: 0,
      originCount: routers - 1,
      linkDelayMs,
      ageMs: () => 0,
    },
  } satisfies SharedLoad;
  const traffic: PeerTraffic = {
    ...{ sent() {}, estimatedPeerTokens: () => 0, isBurst: () => isMeeting, peerTokensAt: () => 0 },
    isBurstRendezvous: () => isMeeting,
    isOwn: (target) => target < owned,
  };
  const policy = createPolicy("least_work");
  const seen: { ownershipMs: number | undefined; own: readonly number[] }[] = [];
  const watching: Policy = {
    ...policy,
    choose(request, candidates, random) {
      seen.push({ ownershipMs: request.ownershipMs, own: [...candidates.own.subarray(0, candidates.count)] });
      return policy.choose(request, candidates, random);
    },
  };
  const targets = Array.from({ length: 4 }, (_, at) => scriptedTarget(at, `e${at}`));
  const selector = createTargetSelector({ random: createSeededRandom(1), knowledge, shared: load, traffic });
  const prompt = { chain: new Uint32Array(20), blockCount: 10, blockSize: 16, tokens: 160, from: "tokens" } as never;
  selector.select({ policy: watching }, targets, { features, prompt }, { tried: new Set() });
  return seen[0];
}

test("a router prefers its own targets the more, the more it has; not with one, and not alone", () => {
  expect(seenBy({ owned: 4 })).toEqual({ ownershipMs: 15, own: [1, 1, 1, 1] });
  expect(seenBy({ owned: 2 })).toEqual({ ownershipMs: 10, own: [1, 1, 0, 0] });
  expect(seenBy({ owned: 1 })?.ownershipMs).toBeUndefined();
  expect(seenBy({ owned: 0 })?.ownershipMs).toBeUndefined();
  expect(seenBy({ owned: 4, routers: 1 })).toEqual({ ownershipMs: undefined, own: [0, 0, 0, 0] });
});

test("a router prefers its own targets by the time that the others are away, also with one", () => {
  expect(seenBy({ owned: 4, linkDelayMs: 50 })?.ownershipMs).toBe(65);
  expect(seenBy({ owned: 1, linkDelayMs: 50 })?.ownershipMs).toBe(50);
  expect(seenBy({ owned: 0, linkDelayMs: 50 })?.ownershipMs).toBeUndefined();
});

test("prompts of a burst rendezvous have no such preference", () => {
  expect(seenBy({ owned: 4, isMeeting: true })?.ownershipMs).toBeUndefined();
});
