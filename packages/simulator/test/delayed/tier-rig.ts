import { asEngineId, asTargetIndex, type Cancel, type Clock } from "@espalier/core";
import { type BlockChanges, blockChange, type EngineStats } from "@espalier/engine-model";
import { createTargetAdapters, createTargetLoad } from "@espalier/engines";
import { createCandidateSet } from "@espalier/policies";
import type { Placement, PromptBlocks, RoutingTarget } from "@espalier/routing";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { createDelayedTier, type DelayedTier } from "../../src/delayed/delayed-tier.ts";
import type { RouterView } from "../../src/fleet/router-view.ts";
import { type EngineMessage, ListenerSet, type SimEngine } from "../../src/fleet/sim-engine.ts";
import type { Sharing, SimTiming } from "../../src/run.ts";
import type { Placement as RegionPlacement } from "../../src/topology.ts";

/** Delays that tell one from the other. */
export const timing: SimTiming = {
  eventDelayMs: 5,
  linkDelayMs: 2,
  hopDelayMs: 1,
  scrapeMs: 500,
  sharedFactsMs: 30,
  sharedLoadMs: 11,
};

/** An engine that tells what a test has it tell. */
export class ScriptedEngine implements SimEngine {
  readonly number: number;
  readonly key: string;
  readonly kvTokens = 1_000_000;
  readonly messages: EngineMessage[] = [];
  readonly firstReplayed = 0;
  readonly adapterLoads = Number.NaN;
  readonly busyMs = 0;
  readonly lends = false;
  isUp = true;
  epochs = 1;
  readonly #messageListeners = new ListenerSet<EngineMessage>();
  readonly #epochListeners = new ListenerSet<void>();

  constructor(number: number) {
    this.number = number;
    this.key = `engine-${number}`;
  }

  onMessage(listener: (message: EngineMessage) => void): Cancel {
    return this.#messageListeners.add(listener);
  }

  onEpoch(listener: () => void): Cancel {
    return this.#epochListeners.add(listener);
  }

  /** Tells of the blocks `from` to `to` of a chain. */
  tell(kind: keyof typeof blockChange, chain: Uint32Array, from: number, to: number): void {
    const words = chain.slice(from * 2, to * 2);
    this.publish({ runs: 1, kinds: Uint8Array.of(blockChange[kind]), ends: Uint32Array.of(to - from), words });
  }

  publish(changes: BlockChanges): void {
    this.#messageListeners.notify({ sequence: 0, timestampUs: -1, checksum: 0, changes });
  }

  sourceFor(): undefined {}

  pullStats(): undefined {}

  slow(): void {}

  kill(): void {
    this.isUp = false;
    this.#epochListeners.notify();
  }

  start(): void {
    this.isUp = true;
    this.epochs++;
    this.#epochListeners.notify();
  }

  stats(): EngineStats {
    throw new Error("a scripted engine has no metrics");
  }

  adapterReading(): undefined {}

  submit(): boolean {
    return false;
  }

  release(): void {}

  abort(): void {}
}

export function scriptedEngines(count: number): ScriptedEngine[] {
  return Array.from({ length: count }, (_, number) => new ScriptedEngine(number));
}

/** A chain of so many blocks that no other chain shares a block with. */
export function chainOf(name: number, blocks: number): Uint32Array {
  return Uint32Array.from({ length: blocks * 2 }, (_, at) => (at % 2 === 0 ? name * 1_000 + at : name));
}

/** A prompt whose last token is in no full block, so that all its blocks can be found in a cache. */
export function promptOf(chain: Uint32Array, blockCount = chain.length / 2): PromptBlocks {
  return { chain, contents: chain, blockCount, blockSize: 16, tokens: blockCount * 16 + 1, from: "tokens" };
}

export interface RouterRig {
  readonly view: RouterView;
  readonly targets: readonly RoutingTarget[];
  /** Blocks of a prompt that an engine is thought to hold. */
  sees(engine: number, prompt: PromptBlocks): number;
  /** Milliseconds since what it is guessed by was last used; NaN where events have told it. */
  ageMs(engine: number, prompt: PromptBlocks): number;
  place(engine: number, prompt: PromptBlocks, matchedTokens?: number): Placement;
  target(engine: number): RoutingTarget;
  /** Requests that others are thought to have at an engine. */
  othersAt(engine: number): number;
}

export interface TierRig {
  readonly time: VirtualTime;
  readonly tier: DelayedTier;
  readonly engines: readonly ScriptedEngine[];
  readonly routers: readonly RouterRig[];
  stop(): Promise<void>;
}

export async function tierRig(
  sharing: Sharing,
  routerCount = 2,
  engineCount = 3,
  placement?: RegionPlacement,
): Promise<TierRig> {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const engines = scriptedEngines(engineCount);
  const tier = createDelayedTier({
    ...{ sharing, routers: routerCount, engines, timing, placement, clock, scheduler },
  });
  const routers = Array.from({ length: routerCount }, (_, router) => routerRig(tier, router, engines, clock));
  for (const { view } of routers) await view.start();
  return {
    ...{ time, tier, engines, routers },
    async stop() {
      for (const { view } of routers) await view.stop();
    },
  };
}

export function routerRig(tier: DelayedTier, router: number, engines: readonly SimEngine[], clock: Clock): RouterRig {
  const targets = engines.map((engine) => targetOf(engine, clock, (target) => view.loadChanged(target)));
  const view = tier.viewOf(router, targets);
  const candidates = createCandidateSet();
  const look = (engine: number, prompt: PromptBlocks): number => {
    const target = targets[engine]!;
    candidates.reset();
    view.knowledge.match(prompt);
    const index = candidates.add(target.key, 0);
    view.knowledge.describe(target, prompt, candidates, index);
    return index;
  };
  return {
    ...{ view, targets },
    sees: (engine, prompt) => candidates.matchedTokens[look(engine, prompt)]! / prompt.blockSize,
    ageMs: (engine, prompt) => candidates.matchAgeMs[look(engine, prompt)]!,
    place: (engine, prompt, matchedTokens = 0) => view.knowledge.place(targets[engine]!, prompt, matchedTokens),
    target: (engine) => targets[engine]!,
    othersAt: (engine) => view.sharedLoad.inFlight[engine] ?? 0,
  };
}

function targetOf({ number, key }: SimEngine, clock: Clock, changed: (target: RoutingTarget) => void): RoutingTarget {
  const unknown = Number.NaN;
  const target: RoutingTarget = {
    index: asTargetIndex(number),
    key,
    engine: { id: asEngineId(key), role: "both", weight: 1 },
    load: createTargetLoad({ clock, onChange: () => changed(target) }),
    signals: {
      ...{ running: unknown, waiting: unknown, kvUse: unknown, blockSize: 16, blockCount: 50_000 },
      ...{ promptTokensTotal: unknown, generationTokensTotal: unknown, prefixQueries: unknown, prefixHits: unknown },
      ...{ inFlightAtScrape: unknown, ageMs: () => Number.POSITIVE_INFINITY },
    },
    adapters: createTargetAdapters(() => clock.nowMs()),
    usable: true,
    exclusion: undefined,
    networkMs: unknown,
  };
  return target;
}
