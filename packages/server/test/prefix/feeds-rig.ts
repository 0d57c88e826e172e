import { createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createPrefixIndex, type PrefixIndex } from "@espalier/prefix-index";
import { createRecentPrompts, maxKnownTargets, type RecentPrompts } from "@espalier/routing";
import { createLocalHost, createLocalOutput } from "@espalier/shared-tree";
import { createSharedBinds, createWorkSlices } from "@espalier/shared-tree/events";
import { blockSize, promptDigests } from "@espalier/testing";
import type { PoolTarget } from "../../src/prefix/engine-feeds.ts";
import { EngineFeeds } from "../../src/prefix/engine-feeds.ts";
import { createFakeTransport, type FakeSocket, type FakeTransport } from "./fake-events.ts";
import { type ScriptedFleet, startScriptedFleet } from "./scripted-fleet.ts";

export interface FeedsRig extends ScriptedFleet {
  readonly feeds: EngineFeeds;
  readonly index: PrefixIndex;
  readonly recent: RecentPrompts;
  readonly transport: FakeTransport;
  /** The latest socket to an endpoint. */
  socket(endpoint: string): FakeSocket;
  /** `TARGET ENDPOINT` of every feed. */
  readonly described: readonly string[];
}

export interface FeedsRigOptions {
  readonly listen?: string;
  readonly maxReplays?: number;
  readonly pools?: readonly PoolTarget[];
}

/** The feeds of a scripted fleet, not started yet. */
export async function feedsRig({ listen, maxReplays = 8, pools = [] }: FeedsRigOptions = {}): Promise<FeedsRig> {
  const scripted = await startScriptedFleet();
  const { time, fleet, http } = scripted;
  const transport = createFakeTransport();
  const index = createPrefixIndex({ maxTargets: maxKnownTargets, maxBlocks: 10_000, maxSets: 100 });
  const recent = createRecentPrompts({ maxRequests: 100, maxBlocks: 10_000 });
  const feeds = new EngineFeeds({
    ...time,
    ...{ fleet, http, recent, digests: promptDigests, blockSize, listen, maxReplays, pools },
    host: createLocalHost((target) =>
      createLocalOutput(
        {
          index,
          forget: (number) => index.forgetTarget(number),
          forgetPlacements: (number) => index.placements.clear(number),
        },
        target.index,
      ),
    ),
    slices: createWorkSlices(time),
    transport: createSharedBinds(transport, silentLogger),
    random: createSeededRandom(7),
    logger: silentLogger,
    meter: silentMeter,
  });
  return {
    ...scripted,
    ...{ feeds, index, recent, transport },
    socket: (endpoint) => transport.sockets.findLast((socket) => socket.endpoint === endpoint)!,
    get described() {
      return feeds.describe().map(({ target, endpoint }) => `${target} ${endpoint}`);
    },
  };
}

export async function startFeedsRig(options: FeedsRigOptions = {}): Promise<FeedsRig> {
  const rig = await feedsRig(options);
  await rig.feeds.start();
  return rig;
}

/** vLLM's answer for ranks whose ports follow one another. */
export const vllmSources = (port: number, { ranks = 1, replay = false } = {}): string =>
  JSON.stringify(
    Object.fromEntries(
      Array.from({ length: ranks }, (_, rank) => [
        rank,
        {
          publisher: "zmq",
          endpoint: `tcp://*:${port + rank}`,
          topic: "kv-events",
          ...(replay ? { replay_endpoint: `tcp://*:${port + 100 + rank}` } : {}),
        },
      ]),
    ),
  );
