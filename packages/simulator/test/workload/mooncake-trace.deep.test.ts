import { createSeededRandom } from "@espalier/core";
import { sharedPath } from "@espalier/testing";
import { beforeAll, describe, expect, test } from "vitest";
import {
  blockText,
  createPromptSynthesizer,
  infiniteCacheBound,
  jitterArrivals,
  mooncakeStepMs,
  readTrace,
  type TraceRequest,
} from "../../src/workload/index.ts";

const path = sharedPath("traces", "conversation_trace.jsonl.gz");

describe.skipIf(path === undefined)("the Mooncake conversation trace", () => {
  let requests: readonly TraceRequest[] = [];
  beforeAll(async () => {
    requests = await readTrace(path!);
  });

  test("is read whole", () => {
    expect(requests).toHaveLength(12_031);
    expect(requests.at(-1)!.arrivalMs).toBe(3_536_999);
    expect(requests[0]).toMatchObject({ inputTokens: 6_758, outputTokens: 500, session: "session-0", turn: 0 });
  });

  test("has the sessions that the definition gives, looking through all earlier requests", () => {
    const sample = requests.slice(0, 2_500);
    const chainOf = (request: TraceRequest) =>
      Array.from(request.blockIds!).slice(0, Math.floor(request.inputTokens / request.blockTokens));
    const sessions: number[] = [];
    for (const [i, request] of sample.entries()) {
      const chain = chainOf(request);
      let longest = 1;
      let session = Math.max(-1, ...sessions) + 1;
      for (let earlier = 0; earlier < i; earlier++) {
        const other = chainOf(sample[earlier]!);
        if (other.length <= longest || other.length > chain.length) continue;
        if (other.at(-1) !== chain[other.length - 1] || !other.every((id, place) => id === chain[place])) continue;
        longest = other.length;
        session = sessions[earlier]!;
      }
      sessions.push(session);
    }
    expect(sample.map((request) => request.session)).toEqual(sessions.map((session) => `session-${session}`));
    expect(new Set(requests.map((request) => request.session)).size).toBe(8_056);
  });

  test("texts of different blocks differ from the third word on, for every block of the trace", () => {
    const openings = new Set<string>();
    const ids = new Set<number>();
    for (const request of requests) {
      for (const id of request.blockIds!) ids.add(id);
    }
    for (const id of ids) openings.add(blockText(id, 3));
    expect(ids.size).toBe(182_790);
    expect(openings.size).toBe(ids.size);
  });

  test("every prompt has its length, and a follow-up repeats what it follows", () => {
    const synthesize = createPromptSynthesizer({ seed: 1 });
    const sample = requests.slice(0, 600);
    const texts = sample.map((request) => synthesize(request) as string);
    for (const [i, text] of texts.entries()) expect(text).toHaveLength(sample[i]!.inputTokens * 4);
    let followUps = 0;
    for (const [i, request] of sample.entries()) {
      if (request.turn === 0) continue;
      const earlier = sample.findIndex((other) => other.session === request.session);
      const sharedTokens = Math.min(2, Math.floor(sample[earlier]!.inputTokens / 512)) * 512;
      expect(texts[i]!.startsWith(texts[earlier]!.slice(0, sharedTokens * 4))).toBe(true);
      followUps += 1;
    }
    expect(followUps).toBe(86);
  });

  test("an infinite cache hits 37 % of it", () => {
    expect(infiniteCacheBound(requests)).toBeCloseTo(0.3734, 4);
    expect(infiniteCacheBound(requests.slice(0, 3_000))).toBeCloseTo(0.3196, 4);
  });

  test("jitter undoes the rounding: no two requests at once, every request in its step", () => {
    const spread = jitterArrivals(requests, { stepMs: mooncakeStepMs, random: createSeededRandom(1) });
    expect(new Set(requests.map((request) => request.arrivalMs)).size).toBe(1_180);
    expect(new Set(spread.map((request) => request.arrivalMs)).size).toBeGreaterThan(12_020);
    for (const [i, request] of spread.entries()) {
      expect(request.index).toBe(i);
      expect(Math.floor(request.arrivalMs / 3_000)).toBe(Math.round(requests[i]!.arrivalMs / 3_000));
    }
  });
});
