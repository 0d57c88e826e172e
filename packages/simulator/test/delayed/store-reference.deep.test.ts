import { asTargetIndex, createSeededRandom, type Random } from "@espalier/core";
import { createPrefixMatches } from "@espalier/prefix-index";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { arrivalsNear, deliveryTimes } from "../../src/delayed/delivery.ts";
import { createDelayedStore } from "../../src/delayed/router-store.ts";
import { SharedKnowledge } from "../../src/delayed/shared-knowledge.ts";
import type { Sharing } from "../../src/run.ts";
import { hashesOf, NaiveTier } from "./naive-tier.ts";
import { promptOf, type ScriptedEngine, scriptedEngines, timing } from "./tier-rig.ts";

const routerCount = 3;
const engineCount = 4;
const chainCount = 12;

/** Chains that begin alike and part at random places. */
function branchingChains(random: Random): Uint32Array[] {
  const chains: Uint32Array[] = [];
  for (let name = 0; name < chainCount; name++) {
    const chain = Uint32Array.from({ length: 2 * (4 + random.integer(30)) }, (_, at) => name * 1_000 + at + 1);
    const parent = name > 2 ? chains[random.integer(name)]! : undefined;
    if (parent) chain.set(parent.subarray(0, 2 * Math.min(chain.length / 2 - 1, random.integer(parent.length / 2))));
    chains.push(chain);
  }
  return chains;
}

/** What one engine holds: whole beginnings of chains. */
class HeldBlocks {
  readonly #hashes = new Set<string>();

  clear(): void {
    this.#hashes.clear();
  }

  /** @returns from which block on it holds a chain not */
  depth(hashes: readonly string[]): number {
    const missing = hashes.findIndex((hash) => !this.#hashes.has(hash));
    return missing < 0 ? hashes.length : missing;
  }

  store(hashes: readonly string[]): void {
    for (const hash of hashes) this.#hashes.add(hash);
  }

  /** @returns whether it held it, and no block of a chain behind it */
  drop(hash: string, followers: readonly string[]): boolean {
    if (followers.some((follower) => this.#hashes.has(follower))) return false;
    return this.#hashes.delete(hash);
  }
}

interface Mix {
  readonly hasRefutes: boolean;
  readonly hasEpochs: boolean;
  readonly ttlMs: (random: Random) => number;
}

class Rig {
  readonly time = createVirtualTime();
  readonly random: Random;
  readonly chains: Uint32Array[];
  readonly engines: ScriptedEngine[] = scriptedEngines(engineCount);
  readonly held = this.engines.map(() => new HeldBlocks());
  readonly naive: NaiveTier;
  readonly stores;
  readonly wrong: string[] = [];
  readonly #mix: Mix;
  readonly #matches = createPrefixMatches(64);

  constructor(sharing: Sharing, seed: number, mix: Mix) {
    this.random = createSeededRandom(seed);
    this.chains = branchingChains(this.random);
    this.#mix = mix;
    const { clock } = this.time;
    const times = deliveryTimes(sharing, routerCount, timing);
    this.naive = new NaiveTier(times);
    const shared = new SharedKnowledge({ engines: this.engines, arrivals: arrivalsNear(times), clock });
    this.stores = Array.from({ length: routerCount }, (_, router) => createDelayedStore(router, shared, clock));
  }

  run(steps: number): void {
    for (let step = 0; step < steps; step++) {
      const kind = this.random.integer(10);
      if (kind < 3) this.#store();
      else if (kind < 5) this.#remove();
      else if (kind < 9) this.#guess();
      else if (this.#mix.hasEpochs && this.random.integer(4) === 0) this.#restart();
      // Whole milliseconds, so that much happens at one moment.
      this.time.advance(this.random.integer(3) === 0 ? this.random.integer(40) : 0);
      if (step % 200 === 0) for (const { maintain } of this.stores) maintain();
      if (this.random.integer(3) === 0) this.compare(step);
    }
  }

  /** What a router sees of a chain must be what everything that happened comes to. */
  compare(step: number): void {
    const router = this.random.integer(routerCount);
    const chain = this.#chain();
    const blocks = this.random.integer(chain.length / 2 + 1);
    const nowMs = this.time.clock.nowMs();
    const matches = this.#matches;
    this.stores[router]!.index.match(chain, blocks, nowMs, matches);
    for (let target = 0; target < engineCount; target++) {
      const expected = this.naive.depths(router, target, chain, blocks, nowMs);
      const { facts, placed, confirmed, usedMs } = expected;
      const isEqual =
        matches.gpuBlocks[target] === facts &&
        matches.factBlocks[target] === facts &&
        matches.placedBlocks[target] === placed &&
        matches.confirmedBlocks[target] === confirmed &&
        (this.#mix.hasRefutes || placed === 0 || matches.placementAgeMs[target] === nowMs - usedMs);
      const seen = `${matches.gpuBlocks[target]} ${matches.placedBlocks[target]} ${matches.confirmedBlocks[target]}`;
      const age = matches.placementAgeMs[target];
      if (!isEqual) this.wrong.push(`step ${step}: ${seen} ${age}, not ${JSON.stringify(expected)} at ${nowMs}`);
    }
  }

  #chain(): Uint32Array {
    return this.chains[this.random.integer(chainCount)]!;
  }

  #store(): void {
    const target = this.random.integer(engineCount);
    const chain = this.#chain();
    const hashes = hashesOf(chain, chain.length / 2);
    const from = this.held[target]!.depth(hashes);
    const to = from + this.random.integer(hashes.length - from + 1);
    if (to === from) return;
    this.held[target]!.store(hashes.slice(from, to));
    const changes = hashes.slice(from, to).map((hash) => ({ isStored: true, hash }));
    this.naive.reported({ target, atMs: this.time.clock.nowMs(), changes });
    this.engines[target]!.tell("stored", chain, from, to);
  }

  #remove(): void {
    const target = this.random.integer(engineCount);
    const chain = this.#chain();
    const hashes = hashesOf(chain, chain.length / 2);
    const block = this.held[target]!.depth(hashes) - 1;
    if (block < 0) return;
    const hash = hashes[block]!;
    const followers = this.chains.flatMap((other) => {
      const all = hashesOf(other, other.length / 2);
      return all[block] === hash && all.length > block + 1 ? [all[block + 1]!] : [];
    });
    if (!this.held[target]!.drop(hash, followers)) return;
    this.naive.reported({ target, atMs: this.time.clock.nowMs(), changes: [{ isStored: false, hash }] });
    this.engines[target]!.tell("removed", chain, block, block + 1);
  }

  #guess(): void {
    const router = this.random.integer(routerCount);
    const target = this.random.integer(engineCount);
    const chain = this.#chain();
    const blockCount = 1 + this.random.integer(chain.length / 2);
    const kinds = ["place", "place", "confirm", ...(this.#mix.hasRefutes ? (["refute"] as const) : [])] as const;
    const kind = kinds[this.random.integer(kinds.length)]!;
    const ttlMs = kind === "refute" ? 0 : this.#mix.ttlMs(this.random);
    this.naive.placed({ router, target, kind, chain, blockCount, atMs: this.time.clock.nowMs(), ttlMs });
    const { placements } = this.stores[router]!;
    const index = asTargetIndex(target);
    if (kind === "refute") placements.refute(index, promptOf(chain), blockCount - 1);
    else placements[kind](index, promptOf(chain, blockCount), ttlMs);
  }

  #restart(): void {
    const target = this.random.integer(engineCount);
    this.held[target]!.clear();
    this.naive.reported({ target, atMs: this.time.clock.nowMs(), changes: undefined });
    this.engines[target]!.start();
  }
}

const mixes: Readonly<Record<string, Mix>> = {
  "guesses of one length of life": { hasRefutes: false, hasEpochs: false, ttlMs: () => 700 },
  "guesses that last differently and fail": {
    hasRefutes: true,
    hasEpochs: false,
    ttlMs: (random) => 1 + random.integer(3_000),
  },
  "engines that run anew": { hasRefutes: true, hasEpochs: true, ttlMs: (random) => 1 + random.integer(3_000) },
};

describe("what a router sees is what everything that reached it comes to", () => {
  for (const sharing of ["mesh", "gossip-1s"] as const) {
    for (const [name, mix] of Object.entries(mixes)) {
      for (const seed of [1, 2, 3]) {
        test(`${sharing}, ${name}, seed ${seed}`, () => {
          const rig = new Rig(sharing, seed, mix);
          rig.run(900);
          expect(rig.wrong.slice(0, 3)).toEqual([]);
        });
      }
    }
  }

  test("also after much was guessed by one router within a moment", () => {
    const rig = new Rig("mesh", 5, mixes["guesses that last differently and fail"]!);
    for (let round = 0; round < 3; round++) {
      for (let name = 0; name < 700; name++) {
        const chain = rig.chains[name % chainCount]!;
        const placement = { router: 0, target: name % engineCount, kind: "place", chain, blockCount: 3 } as const;
        rig.naive.placed({ ...placement, atMs: rig.time.clock.nowMs(), ttlMs: 50 });
        rig.stores[0]!.placements.place(asTargetIndex(name % engineCount), promptOf(chain, 3), 50);
      }
      for (let wait = 0; wait < 6; wait++) {
        rig.compare(wait);
        rig.time.advance(10);
      }
    }
    expect(rig.wrong).toEqual([]);
  });
});
