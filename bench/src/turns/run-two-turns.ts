import { type Clock, createSeededRandom, type Scheduler } from "@espalier/core";
import { type LoadClient, percentile, poissonArrivals, runOpenLoop } from "@espalier/simulator";
import { type Conversation, type ConversationsOptions, createConversations, type Turn } from "./conversations.ts";

export interface TwoTurnPorts {
  readonly client: LoadClient;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
}

export interface TwoTurnOptions {
  readonly conversations: readonly Conversation[];
  /** Routers for the first turns, in rotation. */
  readonly firstUrls: readonly string[];
  /** The router for the second turn of the conversation with this index. */
  readonly secondUrlOf: (index: number) => string;
  /** Conversations that begin per second. */
  readonly ratePerSecond: number;
  /** Seed of the arrivals. */
  readonly seed: number;
}

/** Conversations whose first turns go to the routers in turn, and second ones to the next router. */
export function turnsAcross(
  urls: readonly string[],
  { ratePerSecond, ...conversations }: ConversationsOptions & Pick<TwoTurnOptions, "ratePerSecond">,
): TwoTurnOptions {
  return {
    conversations: createConversations(conversations),
    firstUrls: urls,
    secondUrlOf: (index) => urls[(index + 1) % urls.length]!,
    ratePerSecond,
    seed: conversations.seed,
  };
}

/** Where the two turns of one conversation went. */
export interface TurnPair {
  readonly firstEngine: string;
  readonly secondEngine: string;
  /** From the moment the first turn leaves the client to that of the second. */
  readonly apartMs: number;
}

export interface TwoTurnOutcome {
  readonly conversations: number;
  /** Share of conversations whose turns both went to one engine, 0 to 1. */
  readonly sameEngineShare: number;
  /** The share of first turns at the engine with the most: an eighth when eight got equal shares. */
  readonly largestEngineShare: number;
  readonly apartP99Ms: number;
}

/**
 * Sends conversations at random times. The second turn follows the first after a fixed time, whether or not the first
 * was answered. The time counts from when the first turn leaves the client, before a router dispatches it.
 *
 * @param waitMs between the turns
 * @throws Error when a request fails
 */
export async function runTwoTurns(
  options: TwoTurnOptions,
  waitMs: number,
  ports: TwoTurnPorts,
): Promise<TwoTurnOutcome> {
  const { clock, scheduler } = ports;
  const pairs = await forEachArrival(options, ports, async (conversation, index) => {
    const firstMs = clock.nowMs();
    const first = sendTurn(firstUrlOf(options, index), conversation.first, ports);
    let apartMs = waitMs;
    const second = new Promise<string>((resolve, reject) => {
      scheduler.after(waitMs, () => {
        apartMs = clock.nowMs() - firstMs;
        sendTurn(options.secondUrlOf(index), conversation.second, ports).then(resolve, reject);
      });
    });
    const [firstEngine, secondEngine] = await Promise.all([first, second]);
    return { firstEngine, secondEngine, apartMs };
  });
  return summarizePairs(pairs);
}

/**
 * Sends all first turns and waits for their answers, then runs a task, then sends all second turns.
 *
 * @throws Error when a request fails
 */
export async function runTurnsAround(
  options: TwoTurnOptions,
  between: () => Promise<void>,
  ports: TwoTurnPorts,
): Promise<TwoTurnOutcome> {
  const { clock } = ports;
  const firsts = await forEachArrival(options, ports, async ({ first }, index) => {
    const sentMs = clock.nowMs();
    return { engine: await sendTurn(firstUrlOf(options, index), first, ports), sentMs };
  });
  await between();
  const pairs = await forEachArrival(options, ports, async ({ second }, index) => {
    const { engine: firstEngine, sentMs } = firsts[index]!;
    const apartMs = clock.nowMs() - sentMs;
    return { firstEngine, secondEngine: await sendTurn(options.secondUrlOf(index), second, ports), apartMs };
  });
  return summarizePairs(pairs);
}

/** @param pairs at least one */
export function summarizePairs(pairs: readonly TurnPair[]): TwoTurnOutcome {
  const firsts = new Map<string, number>();
  let same = 0;
  for (const { firstEngine, secondEngine } of pairs) {
    firsts.set(firstEngine, (firsts.get(firstEngine) ?? 0) + 1);
    if (firstEngine === secondEngine) same += 1;
  }
  return {
    conversations: pairs.length,
    sameEngineShare: same / pairs.length,
    largestEngineShare: Math.max(...firsts.values()) / pairs.length,
    apartP99Ms: percentile(Float64Array.from(pairs, ({ apartMs }) => apartMs).sort(), 99),
  };
}

function firstUrlOf({ firstUrls }: TwoTurnOptions, index: number): string {
  return firstUrls[index % firstUrls.length]!;
}

/** @returns the results in order of conversations */
async function forEachArrival<Result>(
  { conversations, ratePerSecond, seed }: TwoTurnOptions,
  ports: TwoTurnPorts,
  run: (conversation: Conversation, index: number) => Promise<Result>,
): Promise<readonly Result[]> {
  const arrivals = poissonArrivals(ratePerSecond, createSeededRandom(seed));
  const results: Result[] = [];
  const failed = new AbortController();
  const jobs = conversations.map((conversation, index) => ({
    dueMs: arrivals.next().value as number,
    run: async (): Promise<void> => {
      try {
        results[index] = await run(conversation, index);
      } catch (thrown) {
        failed.abort(thrown);
      }
    },
  }));
  await runOpenLoop(jobs, ports, failed.signal);
  failed.signal.throwIfAborted();
  return results;
}

/** @returns the engine named by the router */
async function sendTurn(url: string, { path, makeBody }: Turn, { client }: TwoTurnPorts): Promise<string> {
  const { error, engine } = await client.send({ url, path, body: makeBody() });
  if (error !== undefined) throw new Error(`a turn at ${url} failed: ${error}`);
  if (engine === undefined) throw new Error(`the router at ${url} does not name the engine`);
  return engine;
}
