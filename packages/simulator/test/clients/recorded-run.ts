import { createVirtualTime } from "@espalier/testing";
import type { SimRequest, Workload } from "../../src/clients/workload.ts";
import { blockTokens } from "../../src/clients/workload.ts";

export interface SentRequest extends SimRequest {
  readonly sentMs: number;
}

export interface RecordedRun {
  readonly sent: readonly SentRequest[];
  /** When the workload said that it was finished, and how many requests it had sent by then. */
  readonly finishedMs: number | undefined;
  readonly finishedCalls: number;
  readonly sentWhenFinished: number;
  /** The most requests that were unanswered at once. */
  readonly mostInFlight: number;
}

export interface RecordedRunOptions {
  /** Milliseconds until the answer of a request has ended. */
  readonly answerMs?: number | ((request: SimRequest) => number);
  /** Requests that fail. */
  readonly fails?: (request: SimRequest) => boolean;
  /** The clock when the run starts. */
  readonly startMs?: number;
  /** Keeps chains as they were when sent, to see that they do not change. */
  readonly copiesChains?: boolean;
}

const longestRunMs = 1e9;

/** Runs a workload against engines that answer everything after a fixed time. */
export function recordRun(workload: Workload, options: RecordedRunOptions = {}): RecordedRun {
  const { answerMs = 100, fails = () => false, startMs = 0, copiesChains = false } = options;
  const time = createVirtualTime();
  time.advance(startMs);
  const sent: SentRequest[] = [];
  let inFlight = 0;
  let mostInFlight = 0;
  let finishedMs: number | undefined;
  let finishedCalls = 0;
  let sentWhenFinished = 0;
  workload.start({
    clock: time.clock,
    scheduler: time.scheduler,
    send(request, ended) {
      const sentMs = time.clock.nowMs() - startMs;
      sent.push({ ...request, chain: copiesChains ? request.chain.slice() : request.chain, sentMs });
      inFlight += 1;
      mostInFlight = Math.max(mostInFlight, inFlight);
      time.scheduler.after(typeof answerMs === "number" ? answerMs : answerMs(request), () => {
        inFlight -= 1;
        const endMs = time.clock.nowMs();
        const error = fails(request) ? "connection refused" : undefined;
        ended({ firstTokenMs: error === undefined ? endMs : Number.NaN, endMs, cachedTokens: 0, error });
      });
    },
    finished() {
      finishedMs = time.clock.nowMs() - startMs;
      finishedCalls += 1;
      sentWhenFinished = sent.length;
    },
  });
  time.advance(longestRunMs);
  return { sent, finishedMs, finishedCalls, sentWhenFinished, mostInFlight };
}

/** The hashes of a chain as one number each, for sets: 53 of their 64 bits. */
export function hashesOf(chain: Uint32Array): readonly number[] {
  return Array.from(
    { length: chain.length / 2 },
    (_, block) => chain[2 * block]! * 2 ** 21 + (chain[2 * block + 1]! >>> 11),
  );
}

/** Full blocks at the beginning that two chains share. */
export function sharedBlocks(one: Uint32Array, other: Uint32Array): number {
  const blocks = Math.min(one.length, other.length) / 2;
  let shared = 0;
  while (shared < blocks && one[2 * shared] === other[2 * shared] && one[2 * shared + 1] === other[2 * shared + 1]) {
    shared += 1;
  }
  return shared;
}

/** Requests of each session, in order of sending. */
export function bySession(sent: readonly SentRequest[]): ReadonlyMap<number, readonly SentRequest[]> {
  const sessions = new Map<number, SentRequest[]>();
  for (const request of sent) {
    const known = sessions.get(request.session);
    if (known === undefined) sessions.set(request.session, [request]);
    else known.push(request);
  }
  return sessions;
}

/** Share of the prompt tokens that a cache without end and without delay would have held. */
export function infiniteCacheShare(sent: readonly SentRequest[]): number {
  const held = new Set<number>();
  let cached = 0;
  let prompts = 0;
  for (const { chain, promptTokens } of sent) {
    const hashes = hashesOf(chain);
    const reusable = Math.floor((promptTokens - 1) / blockTokens);
    let found = 0;
    while (found < reusable && held.has(hashes[found]!)) found += 1;
    for (const hash of hashes) held.add(hash);
    cached += found * blockTokens;
    prompts += promptTokens;
  }
  return cached / prompts;
}
