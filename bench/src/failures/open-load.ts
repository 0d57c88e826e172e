import { createSeededRandom } from "@espalier/core";
import { blockText, poissonArrivals, runOpenLoop, type TimedJob } from "@espalier/simulator";
import { benchModel } from "../support/bench-model.ts";
import type { WaitPorts } from "../support/until.ts";
import type { FailoverClient, Outcome } from "./failover-client.ts";

/** The form of the requests. */
export interface RequestMix {
  /** Number of shared system prompts, each with this number of words; 0 for none. */
  readonly families: number;
  readonly sharedWords: number;
  /** Words that no other request has. */
  readonly ownWords: number;
  readonly streamTokens: number;
  /** Share of requests that are streams, in every two: 0.5 or 1. */
  readonly streamShare: 0.5 | 1;
  /** Output tokens of answers that are not streamed. */
  readonly plainTokens: number;
}

export interface OpenLoadOptions {
  readonly mix: RequestMix;
  readonly ratePerSecond: number;
  readonly durationMs: number;
  readonly seed: number;
  readonly client: FailoverClient;
  readonly ports: WaitPorts;
  /** Stops sending. */
  readonly signal?: AbortSignal;
}

/** Text numbers: families use another range than requests. */
const firstRequestText = 1_000_000;
const textsPerSeed = 1_000_000;

/** Sends at random times, independently of earlier requests, and waits for all answers. */
export async function runOpenLoad(options: OpenLoadOptions): Promise<readonly Outcome[]> {
  const { mix, ratePerSecond, durationMs, seed, client, ports, signal } = options;
  const outcomes: Outcome[] = [];
  const jobs: TimedJob[] = [];
  const requestOf = createRequests(mix, seed);
  for (const dueMs of poissonArrivals(ratePerSecond, createSeededRandom(seed))) {
    if (dueMs >= durationMs) break;
    const number = jobs.length;
    const run = async (): Promise<void> => {
      const { body, isStream } = requestOf(number);
      outcomes.push(await client.send({ path: "/v1/chat/completions", body }, isStream));
    };
    jobs.push({ dueMs, run });
  }
  await runOpenLoop(jobs, ports, signal);
  return outcomes;
}

/** @returns a function from a request's number to its body: the same for the same seed, and no two alike */
export function createRequests(
  mix: RequestMix,
  seed: number,
): (number: number) => { readonly body: string; readonly isStream: boolean } {
  const shared = Array.from({ length: mix.families }, (_, family) => blockText(family + 1, mix.sharedWords));
  const random = createSeededRandom(seed + textsPerSeed);
  return (number) => {
    const isStream = mix.streamShare === 1 || number % 2 === 0;
    const system = shared.length === 0 ? [] : [{ role: "system", content: shared[random.integer(shared.length)] }];
    const own = blockText(firstRequestText + seed * textsPerSeed + number, mix.ownWords);
    const body = JSON.stringify({
      model: benchModel,
      messages: [...system, { role: "user", content: own }],
      max_tokens: isStream ? mix.streamTokens : mix.plainTokens,
      ignore_eos: true,
      ...(isStream ? { stream: true, stream_options: { include_usage: true } } : {}),
    });
    return { body, isStream };
  };
}
