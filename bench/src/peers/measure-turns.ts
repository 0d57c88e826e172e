import { createLoadClient } from "@espalier/load-driver";
import { createConversations } from "../suites/two-turn-conversations.ts";
import { runTwoTurns } from "../suites/two-turn-run.ts";
import type { WaitPorts } from "../support/until.ts";
import type { MeshProduct, TurnFleetOptions } from "./turn-fleets.ts";

/** How large the two-turn test is. */
export interface TurnSizes extends Omit<TurnFleetOptions, "isMesh"> {
  /** Of each measurement. */
  readonly conversations: number;
  /** Conversations that each fleet sees before it is measured. */
  readonly warmUpConversations: number;
  /** Conversations that begin in a second. */
  readonly ratePerSecond: number;
  /** Times between the turns, with the mesh. */
  readonly waitsMs: readonly number[];
  /** The one without, where it makes no difference. */
  readonly chanceWaitMs: number;
}

/** Where second turns went. */
export interface TurnShare {
  readonly name: string;
  readonly isMesh: boolean;
  readonly waitMs: number;
  /** Conversations, 0 to 1, both of whose turns went to one engine. */
  readonly sameEngineShare: number;
  /** The share of first turns of the engine that got most. */
  readonly largestEngineShare: number;
}

export interface MeasureTurnsOptions {
  readonly sizes: TurnSizes;
  /** Of texts and arrivals. */
  readonly seed: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** Sets of conversations of one fleet, so that seeds of different runs do not meet. */
const maxSetsPerFleet = 1_000;
/** How long answers may take beyond the time in which the turns are sent. */
const graceMs = 30_000;

/**
 * The two-turn test with fresh routers and engines: first turns at each router in turn, second ones at the next, with the
 * mesh after each wait, or without.
 *
 * @throws Error when a part does not start, a request fails or takes too long
 */
export async function measureTurns(
  product: MeshProduct,
  isMesh: boolean,
  { sizes, seed, ports, note }: MeasureTurnsOptions,
): Promise<readonly TurnShare[]> {
  const waitsMs = isMesh ? sizes.waitsMs : [sizes.chanceWaitMs];
  const fleet = await product.startFleet({ ...sizes, isMesh }, ports);
  const client = createLoadClient(ports.clock);
  const shares: TurnShare[] = [];
  let sets = 0;
  const run = (count: number, waitMs: number) => {
    const ownSeed = seed * maxSetsPerFleet + ++sets;
    const { urls } = fleet;
    // A router that does not answer would otherwise hold the bench for ever: its requests fail when the client closes.
    const limitMs = (count / sizes.ratePerSecond) * 1_000 + waitMs + graceMs;
    const cancel = ports.scheduler.after(limitMs, () => client.close());
    return runTwoTurns(
      {
        conversations: createConversations({ count, form: "text", seed: ownSeed }),
        firstUrls: urls,
        secondUrlOf: (index) => urls[(index + 1) % urls.length]!,
        ratePerSecond: sizes.ratePerSecond,
        seed: ownSeed,
      },
      waitMs,
      { ...ports, client },
    ).finally(cancel);
  };
  try {
    await run(sizes.warmUpConversations, sizes.chanceWaitMs);
    for (const waitMs of waitsMs) {
      const { sameEngineShare, largestEngineShare } = await run(sizes.conversations, waitMs);
      shares.push({ name: product.name, isMesh, waitMs, sameEngineShare, largestEngineShare });
      const percent = (sameEngineShare * 100).toFixed(1);
      note(`${product.name}, ${isMesh ? "mesh" : "no mesh"}: ${percent} % at the same engine after ${waitMs} ms`);
    }
  } finally {
    client.close();
    await fleet.stop();
  }
  return shares;
}
