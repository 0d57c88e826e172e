import { blockTokens, type SimRequest } from "../clients/workload.ts";
import type { FrontOutcome } from "../fleet/front.ts";
import type { SimEngine } from "../fleet/sim-engine.ts";
import type { RivalParts } from "./rival.ts";

/** 53 bits of the hash of a block. */
export function nameOf(chain: Uint32Array, block: number): number {
  return chain[2 * block]! * 2 ** 21 + (chain[2 * block + 1]! >>> 11);
}

/** Tokens at the start of a prompt whose blocks are among those named. */
export function matchedTokens({ chain, promptTokens }: SimRequest, names: ReadonlySet<number>): number {
  const blocks = Math.floor(promptTokens / blockTokens);
  let block = 0;
  while (block < blocks && names.has(nameOf(chain, block))) block++;
  return block * blockTokens;
}

/** What one balancer remembers of the prompts that it has sent to one place. */
export class SentPrefixes {
  readonly #names = new Set<number>();

  add({ chain, promptTokens }: SimRequest): void {
    for (let block = 0; block < Math.floor(promptTokens / blockTokens); block++) this.#names.add(nameOf(chain, block));
  }

  /** Tokens at the start of the prompt that were sent before. */
  matchedTokens(request: SimRequest): number {
    return matchedTokens(request, this.#names);
  }
}

/** An engine as one balancer sees it. */
export class Seat {
  readonly engine: SimEngine;
  readonly region: number;
  readonly prefixes = new SentPrefixes();
  /** Requests sent there that have not ended, and the tokens of their prompts. */
  inFlight = 0;
  promptTokens = 0;
  /** Prompt tokens sent there that it was not expected to have, since the beginning. */
  sentTokens = 0;
  /** As read last. */
  running = 0;
  waiting = 0;
  usedTokens = 0;
  /** Requests that waited at this reading and the one before: SGLang's gauge counts what a step has left, not what just came. */
  stillWaiting = 0;

  constructor(engine: SimEngine, region: number) {
    this.engine = engine;
    this.region = region;
  }

  /** Reads the engine's metrics as they are now. */
  read(): void {
    const { running, waiting, kvUse } = this.engine.stats();
    this.running = running;
    this.stillWaiting = Math.min(waiting, this.waiting);
    this.waiting = waiting;
    this.usedTokens = kvUse * this.engine.kvTokens;
  }
}

export function createSeats({ engines, placement }: Pick<RivalParts, "engines" | "placement">): readonly Seat[] {
  return engines.map((engine) => new Seat(engine, placement.engines[engine.number]!));
}

/** The first of those with the least cost. */
export function leastOf<Item>(items: readonly Item[], costOf: (item: Item) => number): Item | undefined {
  let best: Item | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const item of items) {
    const cost = costOf(item);
    if (best !== undefined && cost >= least) continue;
    best = item;
    least = cost;
  }
  return best;
}

/** One of those with the least cost, drawn. @param items at least one */
export function drawLeast<Item>(
  items: readonly Item[],
  costOf: (item: Item) => number,
  { random }: Pick<RivalParts, "random">,
): Item {
  const costs = items.map(costOf);
  const least = Math.min(...costs);
  const tied = items.filter((_, at) => costs[at] === least);
  return tied[random.integer(tied.length)]!;
}

interface Sending {
  readonly seat: Seat;
  /** The client's region, and those of the balancers that the request has passed, in order. */
  readonly path: readonly number[];
  /** For the row. */
  readonly predictedTokens?: number;
  /** Called at the balancer when the answer has ended there. */
  readonly done?: () => void;
}

/** Sends a request to an engine and its answer back along the path to the client. The seat counts it meanwhile. */
export function sendToSeat(
  { clock, scheduler, placement }: Pick<RivalParts, "clock" | "scheduler" | "placement">,
  request: SimRequest,
  { seat, path, predictedTokens = 0, done }: Sending,
  ended: (outcome: FrontOutcome) => void,
): void {
  const toEngineMs = placement.delayMs(path.at(-1)!, seat.region);
  const [entry = path[0]!, ...further] = path.slice(1);
  const toClientMs = further.reduce(
    (sum, region, at) => sum + placement.delayMs(path[at + 1]!, region),
    placement.clientDelayMs(path[0]!, entry),
  );
  let firstTokenMs = Number.NaN;
  seat.inFlight += 1;
  seat.promptTokens += request.promptTokens;
  const finish = (cachedTokens: number, error: string | undefined): void => {
    scheduler.after(toEngineMs, () => {
      seat.inFlight -= 1;
      seat.promptTokens -= request.promptTokens;
      done?.();
      scheduler.after(toClientMs, () =>
        ended({
          ...{ firstTokenMs, cachedTokens, error, endMs: clock.nowMs() },
          ...{ engine: error === undefined ? seat.engine.number : -1, predictedTokens, isSpill: false },
        }),
      );
    });
  };
  scheduler.after(toEngineMs, () => {
    const isTaken = seat.engine.submit(request, {
      firstToken: (timeMs) => {
        firstTokenMs = timeMs + toEngineMs + toClientMs;
      },
      progress() {},
      finished: ({ cachedTokens }) => finish(cachedTokens, undefined),
      lost: () => finish(Number.NaN, "the engine went away"),
    });
    if (!isTaken) finish(Number.NaN, "no engine is available");
  });
}
