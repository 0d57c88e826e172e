import { createLoadClient } from "@espalier/simulator";
import type { WaitPorts } from "../support/until.ts";
import { runTwoTurns, turnsAcross } from "../turns/run-two-turns.ts";
import type { MeshProduct, TurnFleetOptions } from "./turn-fleets.ts";

/** The size of the two-turn test. */
export interface TurnSizes extends Omit<TurnFleetOptions, "isMesh"> {
  /** Duration of each measurement. */
  readonly conversations: number;
  /** Warm-up conversations of each fleet. */
  readonly warmUpConversations: number;
  /** Conversations that begin per second. */
  readonly ratePerSecond: number;
  /** Times between the turns, with the mesh. */
  readonly waitsMs: readonly number[];
  /** The time without the mesh, where it makes no difference. */
  readonly chanceWaitMs: number;
}

/** Where second turns went. */
export interface TurnShare {
  readonly name: string;
  readonly isMesh: boolean;
  readonly waitMs: number;
  /** Share of conversations whose turns both went to one engine, 0 to 1. */
  readonly sameEngineShare: number;
  /** The share of first turns at the engine with the most. */
  readonly largestEngineShare: number;
}

export interface MeasureTurnsOptions {
  readonly sizes: TurnSizes;
  /** Seed of texts and arrivals. */
  readonly seed: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** Maximum sets of conversations per fleet, so that seeds of different runs do not overlap. */
const maxSetsPerFleet = 1_000;
/** How long answers may take after the last turn is sent. */
const graceMs = 30_000;

/**
 * The two-turn test with fresh routers and engines. First turns go to the routers in turn, second ones to the next
 * router; with the mesh after each wait, or without it.
 *
 * @throws Error when a part does not start, or a request fails or takes too long
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
    // A router that does not answer would otherwise block the bench forever. Closing the client fails its requests.
    const limitMs = (count / sizes.ratePerSecond) * 1_000 + waitMs + graceMs;
    const cancel = ports.scheduler.after(limitMs, () => client.close());
    return runTwoTurns(
      turnsAcross(urls, { count, form: "text", ratePerSecond: sizes.ratePerSecond, seed: ownSeed }),
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
