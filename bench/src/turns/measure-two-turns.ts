import { createLoadClient } from "@espalier/simulator";
import { hasRedisServer, startRedisServer } from "@espalier/testing";
import { benchModel } from "../support/bench-model.ts";
import type { Figures } from "../support/median-spread.ts";
import { type FleetSharing, startMeshFleet } from "../support/mesh-fleet.ts";
import { pauseFor, type WaitPorts } from "../support/until.ts";
import { runTurnsAround, runTwoTurns, type TwoTurnOptions, type TwoTurnOutcome, turnsAcross } from "./run-two-turns.ts";

/** The size of the suite's runs. */
export interface TwoTurnSizes {
  readonly engines: number;
  /** Engine seconds per real second. */
  readonly speed: number;
  readonly conversations: number;
  /** Warm-up conversations of each fleet, so that its code is compiled. */
  readonly warmUpConversations: number;
  /** Conversations that begin per second. */
  readonly ratePerSecond: number;
  readonly waitMs: number;
  /** Further times between the turns, for two routers with the mesh. */
  readonly sweepMs: readonly number[];
}

/** The figures of one run. */
export interface TwoTurnRun {
  readonly mesh: Figures;
  readonly withoutMesh: Figures;
  /** The share of conversations that stayed at their engine, by the time between the turns in milliseconds. */
  readonly sweep: Figures;
}

export interface MeasureOptions {
  readonly sizes: TwoTurnSizes;
  /** Seed of texts and arrivals. */
  readonly seed: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

export const measuredPolicy = "cache_aware";
export const enginePreset = "h100-32b-tp2";
/** From the death of the router that took the first turns until the second turns. */
export const afterKillMs = 2_000;
const microsPerSecond = 1e6;

/**
 * Measures every kind of fleet once, each with fresh processes.
 *
 * @throws Error when a part of a fleet does not start or a request fails
 */
export async function measureTwoTurns(options: MeasureOptions): Promise<TwoTurnRun> {
  const { sizes } = options;
  const sweep: Record<string, number> = {};
  const two = await withFleet(options, { routers: 2, sharing: "mesh", kvEvents: false }, async (measure) => {
    const atWait = await measure.share(sizes.waitMs);
    sweep[sizes.waitMs] = atWait.share;
    for (const waitMs of sizes.sweepMs) sweep[waitMs] = (await measure.share(waitMs)).share;
    return atWait;
  });
  const three = await withFleet(options, { routers: 3, sharing: "mesh", kvEvents: false }, async (measure) => ({
    ...(await measure.share(sizes.waitMs)),
    afterKill: await measure.afterKill(),
  }));
  const shareOf = (fleet: FleetKind): Promise<ShareAndCost> =>
    withFleet(options, fleet, (measure) => measure.share(sizes.waitMs));
  const alone = await shareOf({ routers: 2, sharing: "none", kvEvents: false });
  const threeAlone = await shareOf({ routers: 3, sharing: "none", kvEvents: false });
  const events = await shareOf({ routers: 2, sharing: "mesh", kvEvents: true });
  const eventsAlone = await shareOf({ routers: 2, sharing: "none", kvEvents: true });
  const redis = await shareByRedis(options);
  return {
    sweep,
    mesh: {
      same_engine_share: two.share,
      same_engine_share_3_routers: three.share,
      after_kill_same_engine_share: three.afterKill,
      events_same_engine_share: events.share,
      ...(redis === undefined ? {} : { redis_same_engine_share: redis.share }),
      cpu_us_per_request: two.cpuMicros,
      mesh_cpu_ratio: two.cpuMicros / alone.cpuMicros,
      events_mesh_cpu_ratio: events.cpuMicros / eventsAlone.cpuMicros,
      largest_engine_share: two.largest,
      apart_p99_ms: two.apartP99Ms,
    },
    withoutMesh: {
      same_engine_share: alone.share,
      same_engine_share_3_routers: threeAlone.share,
      events_same_engine_share: eventsAlone.share,
      cpu_us_per_request: alone.cpuMicros,
      largest_engine_share: alone.largest,
      apart_p99_ms: alone.apartP99Ms,
    },
  };
}

interface FleetKind {
  readonly routers: number;
  readonly sharing: FleetSharing;
  readonly kvEvents: boolean;
  readonly redisUrl?: string;
}

interface ShareAndCost {
  readonly share: number;
  /** CPU time of all routers per request. */
  readonly cpuMicros: number;
  /** The share of first turns at the engine with the most. */
  readonly largest: number;
  readonly apartP99Ms: number;
}

/** The measurements of one fleet; each uses conversations that the fleet has not seen. */
interface FleetMeasures {
  /** First turns go to the routers in turn, second turns to the next router. */
  share(waitMs: number): Promise<ShareAndCost>;
  /** First turns go to the first router, which then dies, and second turns to the others. @returns the share */
  afterKill(): Promise<number>;
}

async function withFleet<Result>(
  { sizes, seed, ports, note }: MeasureOptions,
  kind: FleetKind,
  use: (measures: FleetMeasures) => Promise<Result>,
): Promise<Result> {
  const name = `${kind.routers} routers, ${kind.sharing}${kind.kvEvents ? ", KV events" : ""}`;
  const { engines: count, speed } = sizes;
  const engines = { count, speed, preset: enginePreset, model: benchModel, port: 0, kvEvents: kind.kvEvents };
  const fleet = await startMeshFleet({ ...kind, engines, policy: measuredPolicy }, ports);
  const client = createLoadClient(ports.clock);
  const runPorts = { ...ports, client };
  const urls = fleet.routers.map(({ url }) => url);
  let sets = 0;
  const next = (conversations: number): TwoTurnOptions => {
    sets += 1;
    const form = kind.kvEvents ? "tokens" : "text";
    const ownSeed = seed * maxSetsPerFleet + sets;
    return turnsAcross(urls, { count: conversations, form, ratePerSecond: sizes.ratePerSecond, seed: ownSeed });
  };
  const tell = (what: string, { sameEngineShare, apartP99Ms }: TwoTurnOutcome): void =>
    note(`${name}: ${(sameEngineShare * 100).toFixed(1)} % ${what} (p99 ${apartP99Ms.toFixed(0)} ms apart)`);
  try {
    await runTwoTurns(next(sizes.warmUpConversations), sizes.waitMs, runPorts);
    return await use({
      async share(waitMs) {
        const before = await fleet.routerCpuSeconds();
        const outcome = await runTwoTurns(next(sizes.conversations), waitMs, runPorts);
        const spentS = (await fleet.routerCpuSeconds()) - before;
        tell(`at ${waitMs} ms`, outcome);
        return {
          share: outcome.sameEngineShare,
          cpuMicros: (spentS * microsPerSecond) / (outcome.conversations * 2),
          largest: outcome.largestEngineShare,
          apartP99Ms: outcome.apartP99Ms,
        };
      },
      async afterKill() {
        const [dead, ...living] = urls;
        const options = { ...next(sizes.conversations), firstUrls: [dead!] };
        const secondUrlOf = (index: number): string => living[index % living.length]!;
        const kill = async (): Promise<void> => {
          await fleet.kill(0);
          await pauseFor(afterKillMs, ports.scheduler);
        };
        const outcome = await runTurnsAround({ ...options, secondUrlOf }, kill, runPorts);
        tell("after the first router's death", outcome);
        return outcome.sameEngineShare;
      },
    });
  } finally {
    client.close();
    await fleet.stop();
  }
}

/** Maximum sets of conversations per fleet, so that seeds of different runs do not overlap. */
const maxSetsPerFleet = 1_000;

async function shareByRedis(options: MeasureOptions): Promise<ShareAndCost | undefined> {
  if (!hasRedisServer("redis_same_engine_share")) return undefined;
  const redis = await startRedisServer();
  try {
    const kind = { routers: 2, sharing: "redis", kvEvents: false, redisUrl: redis.url } as const;
    return await withFleet(options, kind, (measure) => measure.share(options.sizes.waitMs));
  } finally {
    await redis.close();
  }
}
