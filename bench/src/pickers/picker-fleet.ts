import { createLoadClient } from "@espalier/simulator";
import { type EnvoyProcess, envoyConfig, pickerOf, standardEnvoyLimits, startEnvoy } from "espalier-router";
import { createFailoverClient } from "../failures/failover-client.ts";
import { type RequestMix, runOpenLoad } from "../failures/open-load.ts";
import { describeWrong, tally } from "../failures/tally.ts";
import { cacheAware } from "../peers/products.ts";
import { benchModel } from "../support/bench-model.ts";
import type { Figures } from "../support/median-spread.ts";
import { type MeshFleet, startMeshFleet } from "../support/mesh-fleet.ts";
import { pauseFor, type WaitPorts } from "../support/until.ts";
import { enginePreset } from "../turns/measure-two-turns.ts";
import { runTwoTurns, turnsAcross } from "../turns/run-two-turns.ts";

/** The size of what is measured of several pickers. */
export interface PickerFleetSizes {
  readonly conversations: number;
  /** Conversations that the fleet sees before. */
  readonly warmUpConversations: number;
  /** How long the load lasts in whose middle a picker is killed. */
  readonly killLoadMs: number;
}

export interface PickerFleetOptions {
  readonly sizes: PickerFleetSizes;
  /** Envoy's program. */
  readonly envoy: string;
  /** Seed of texts and arrivals. */
  readonly seed: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

const pickers = 3;
const engines = 8;
/** Engine seconds per real second. */
const speed = 4;
const conversationsPerSecond = 40;
/** Between the turns of a conversation. */
const waitMs = 50;
const killLoadPerSecond = 100;
/** Half of it streams of about half a second. */
const mix: RequestMix = {
  ...{ families: 16, sharedWords: 256, ownWords: 24 },
  ...{ streamShare: 0.5, streamTokens: 200, plainTokens: 4 },
};
const host = "127.0.0.1";

export const pickerFleetParams = {
  ...{ pickers, fleet_engines: engines, fleet_engine_preset: enginePreset, fleet_speed: speed, turn_wait_ms: waitMs },
  kill_load_per_second: killLoadPerSecond,
} as const;

/**
 * What three pickers of a mesh do together, before simulated engines: the share of conversations whose second turn meets
 * another picker and goes to the same engine, and the requests that fail when one of the pickers is killed under load, where
 * answers pass through pickers and where they do not.
 *
 * @throws Error when a part does not start
 */
export async function measurePickerFleet(options: PickerFleetOptions): Promise<Figures> {
  const sameEngineShare = await withFleet(options, (fleet) => twoTurns(fleet, options));
  options.note(`${(sameEngineShare * 100).toFixed(1)} % at the same engine through another picker`);
  const figures: Record<string, number> = { same_engine_share: sameEngineShare };
  for (const [suffix, answersThroughPicker] of [["", true] as const, ["_answers_hidden", false] as const]) {
    const outcome = await withFleet(options, (fleet) => killOne(fleet, answersThroughPicker, options));
    figures[`failed_after_kill${suffix}`] = outcome.failed;
    figures[`streams_cut_after_kill${suffix}`] = outcome.cut;
    figures[`requests_around_kill${suffix}`] = outcome.requests;
  }
  return figures;
}

async function withFleet<Result>(
  { ports }: PickerFleetOptions,
  work: (fleet: MeshFleet) => Promise<Result>,
): Promise<Result> {
  const fleet = await startMeshFleet(
    {
      engines: { count: engines, speed, preset: enginePreset, model: benchModel, port: 0, kvEvents: false },
      ...{ routers: pickers, sharing: "mesh", policy: cacheAware, isPicker: true },
    },
    ports,
  );
  try {
    return await work(fleet);
  } finally {
    await fleet.stop();
  }
}

/** @returns the share, 0 to 1 */
async function twoTurns(fleet: MeshFleet, options: PickerFleetOptions): Promise<number> {
  const { sizes, seed, ports } = options;
  const envoys: EnvoyProcess[] = [];
  const client = createLoadClient(ports.clock);
  try {
    // One Envoy before each picker, so that it is known which one is asked.
    for (const router of fleet.routers) envoys.push(await startFleetEnvoy(fleet, [router], true, options));
    const urls = envoys.map(({ listening }) => listening.url);
    const run = (count: number, ownSeed: number) => {
      const turns = turnsAcross(urls, { count, form: "text", ratePerSecond: conversationsPerSecond, seed: ownSeed });
      return runTwoTurns(turns, waitMs, { ...ports, client });
    };
    await run(sizes.warmUpConversations, 2 * seed);
    return (await run(sizes.conversations, 2 * seed + 1)).sameEngineShare;
  } finally {
    client.close();
    await Promise.all(envoys.map((envoy) => envoy.stop()));
  }
}

interface KillOutcome {
  readonly requests: number;
  /** Without an answer that began. */
  readonly failed: number;
  /** Streams that began and broke off. */
  readonly cut: number;
}

async function killOne(
  fleet: MeshFleet,
  answersThroughPicker: boolean,
  options: PickerFleetOptions,
): Promise<KillOutcome> {
  const { sizes, seed, ports, note } = options;
  const envoy = await startFleetEnvoy(fleet, fleet.routers, answersThroughPicker, options);
  const client = createLoadClient(ports.clock);
  try {
    const load = runOpenLoad({
      ...{ mix, ratePerSecond: killLoadPerSecond, durationMs: sizes.killLoadMs, seed, ports },
      client: createFailoverClient(client, [envoy.listening.url]),
    });
    await pauseFor(sizes.killLoadMs / 2, ports.scheduler);
    await fleet.kill(0);
    const { requests, failed, cut } = tally(await load);
    const what = answersThroughPicker ? "answers through pickers" : "answers past pickers";
    note(`a picker killed, ${what}: ${failed.length} of ${requests} requests failed, ${cut.length} streams were cut`);
    for (const line of describeWrong([...failed, ...cut])) note(`  ${line}`);
    return { requests, failed: failed.length, cut: cut.length };
  } finally {
    client.close();
    await envoy.stop();
  }
}

function startFleetEnvoy(
  fleet: MeshFleet,
  routers: MeshFleet["routers"],
  answersThroughPicker: boolean,
  { envoy: program }: PickerFleetOptions,
): Promise<EnvoyProcess> {
  const config = envoyConfig({
    listen: { host, port: 0 },
    admin: { host, port: 0 },
    pickers: routers.map(pickerOf),
    engines: fleet.engineUrls.map((url) => ({ host, port: Number(new URL(url).port) })),
    requestBody: "full-duplex",
    answersThroughPicker,
    limits: standardEnvoyLimits,
  });
  return startEnvoy({ program, config, threads: 1 });
}
