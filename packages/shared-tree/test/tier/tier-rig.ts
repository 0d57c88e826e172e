import { asRouterId, type asTargetIndex, createSeededRandom, silentLogger, silentMeter } from "@espalier/core";
import { createMesh } from "@espalier/mesh";
import { createPrefixIndex, createPrefixMatches, type PrefixIndex } from "@espalier/prefix-index";
import { createMemoryNetwork, createVirtualTime, type MemoryNetwork, type VirtualTime } from "@espalier/testing";
import { createTargetSlots, type TargetSlots } from "../../src/facts/target-slots.ts";
import type { HostedFeed } from "../../src/feeds/feed-host.ts";
import { createSharedTier, createTargetIndices, type SharedTier } from "../../src/shared-tier.ts";
import type { ScriptedEngine } from "./scripted-engine.ts";

/** One router's tier, with what it fills. */
export interface TierRouter {
  readonly name: string;
  readonly tier: SharedTier;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  /** Keys of the engines in its fleet, whether it reads them or not; what it reads need not be there. */
  readonly fleet: Set<string>;
  /** The number of a target, given when it is asked for first. */
  indexOf(target: string): ReturnType<typeof asTargetIndex>;
  /** Begins to take part in reading an engine. */
  read(engine: ScriptedEngine): HostedFeed;
  /** Leading blocks of a chain that a target holds by facts. */
  held(target: string, chain: Uint32Array): number;
  /** Leading blocks of a chain that a target is thought to hold. */
  placed(target: string, chain: Uint32Array): number;
}

/** Tiers of several routers over a network in memory, in virtual time. */
export class TierCluster {
  readonly time: VirtualTime = createVirtualTime();
  readonly network: MemoryNetwork;
  readonly #random = createSeededRandom(1);
  readonly #maxTargets: number;

  /** @param maxTargets that a router has numbers for */
  constructor(maxTargets = 16) {
    this.#maxTargets = maxTargets;
    this.network = createMemoryNetwork({ ...this.time, random: this.#random });
    this.network.setSpeed({ delayMs: 1 });
  }

  /** A router that is not started. @param name one letter, from `a` on; all dial `a` and `b` */
  add(name: string): TierRouter {
    const maxTargets = this.#maxTargets;
    const index = createPrefixIndex({ maxTargets, maxBlocks: 10_000, maxSets: 1_000 });
    const slots = createTargetSlots(maxTargets);
    const fleet = new Set<string>();
    const indexOf = createTargetIndices(slots);
    const ports = { ...this.time, logger: silentLogger, meter: silentMeter };
    const tier = createSharedTier({
      ...{ ...ports, router: asRouterId(name), index, slots, placementTtlMs: 600_000 },
      fleetTargets: () => fleet,
      createBackend: (replica) =>
        createMesh({
          ...{ ...ports, replica: replica.ports, random: this.#random },
          transport: this.network.transport(addressOf(name)),
          security: { kind: "secret", secrets: ["a secret of the test"] },
          seeds: [addressOf("a"), addressOf("b")],
          ...{ cluster: "test", fleetSeed: "seed", blockSizeTokens: 16 },
        }),
    });
    const matches = createPrefixMatches(maxTargets);
    const match = (target: string, chain: Uint32Array): number => {
      index.match(chain, chain.length / 2, this.time.clock.nowMs(), matches);
      return slots.find(target);
    };
    return {
      ...{ name, tier, index, slots, fleet, indexOf },
      read: (engine) => tier.host.open({ index: indexOf(engine.key), key: engine.key }, engine.readBy(name)),
      held: (target, chain) => matches.gpuBlocks[match(target, chain)] ?? 0,
      placed: (target, chain) => matches.placedBlocks[match(target, chain)] ?? 0,
    };
  }

  /** See `VirtualTime`. */
  until(condition: () => boolean, timeoutMs?: number): number {
    return this.time.until(condition, timeoutMs);
  }
}

/** An IP address, so that no resolver is asked. */
function addressOf(name: string): string {
  return `127.0.0.${name.charCodeAt(0) - 96}:7000`;
}
