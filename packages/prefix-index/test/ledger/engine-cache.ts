import type { Random } from "@espalier/core";
import type { TestEvent } from "./helpers.ts";
import type { PromptFeed } from "./prompt-feed.ts";

const letters = "abc";

export interface EngineCacheOptions {
  readonly feed: PromptFeed;
  readonly random: Random;
  /** Engine blocks of a prompt at most. */
  readonly maxDepth: number;
  readonly namespaces: readonly string[];
  readonly tiers: readonly number[];
  /** Whether blocks go leaf first, as where an engine has one tier and no children without parents. */
  readonly evictsLeaves: boolean;
}

interface CachedBlock {
  readonly namespace: string;
  readonly prefix: string;
  readonly tiers: Set<number>;
}

/**
 * An engine's cache that announces what it does truthfully. It is a set of prefixes, so that what the router's blocks
 * are can be said without any tree: that is `blocks` and `holes`.
 */
export class EngineCache {
  readonly #options: EngineCacheOptions;
  readonly #blocks = new Map<string, CachedBlock>();

  constructor(options: EngineCacheOptions) {
    this.#options = options;
  }

  next(): TestEvent {
    const { random } = this.#options;
    const dice = random.integer(100);
    if (dice < 45 || this.#blocks.size === 0) return this.#prefill();
    if (dice < 97) return this.#evict();
    if (dice < 99) return this.#move();
    this.#blocks.clear();
    return { kind: "cleared" };
  }

  /** The events that announce all of the cache, parents before children. */
  announcements(): TestEvent[] {
    const { feed } = this.#options;
    return [...this.#blocks.values()]
      .sort((one, other) => one.prefix.length - other.prefix.length)
      .flatMap(({ namespace, prefix, tiers }) => {
        const start = prefix.length - feed.engineUnits;
        const prompt = start === 0 ? prefix : `${prefix.slice(0, start)}|${prefix.slice(start)}`;
        return [...tiers].map((tier) => feed.stored(prompt, { namespace, tier }));
      });
  }

  /** The router's blocks that are whole in a tier. */
  blocks(tier: number): string[] {
    const { feed } = this.#options;
    const held = this.#prefixes(tier);
    const found = new Set<string>();
    for (const prefix of held) {
      for (let end = feed.routerUnits; end <= prefix.length; end += feed.routerUnits) {
        const block = prefix.slice(0, end);
        if (isWhole(block, held, feed)) found.add(block);
      }
    }
    return [...found].sort();
  }

  /** The router's blocks that are not in a tier although longer ones that begin with them are, with their depths. */
  holes(tier: number): Record<string, number> {
    const { routerUnits } = this.#options.feed;
    const blocks = new Set(this.blocks(tier));
    const holes: Record<string, number> = {};
    for (const block of blocks) {
      for (let end = routerUnits; end < block.length; end += routerUnits) {
        const above = block.slice(0, end);
        if (!blocks.has(above)) holes[above] = end / routerUnits - 1;
      }
    }
    return holes;
  }

  #prefixes(tier: number): Set<string> {
    const held = [...this.#blocks.values()].filter(({ tiers }) => tiers.has(tier));
    return new Set(held.map(({ prefix }) => prefix));
  }

  #prefill(): TestEvent {
    const { feed, random, maxDepth, namespaces } = this.#options;
    const namespace = pick(random, namespaces);
    const tier = this.#tier();
    let prompt = "";
    const units = feed.engineUnits * (1 + random.integer(maxDepth));
    // Mostly the first letter, so that prompts meet.
    for (let unit = 0; unit < units; unit++) prompt += random.integer(4) > 0 ? "a" : pick(random, [...letters]);
    for (let end = feed.engineUnits; end <= units; end += feed.engineUnits) {
      const prefix = prompt.slice(0, end);
      const key = `${namespace}:${prefix}`;
      const block = this.#blocks.get(key) ?? { namespace, prefix, tiers: new Set() };
      block.tiers.add(tier);
      this.#blocks.set(key, block);
    }
    return feed.stored(prompt, { namespace, tier });
  }

  #evict(): TestEvent {
    const { feed, random } = this.#options;
    const { namespace } = pick(random, [...this.#blocks.values()]);
    const tier = this.#tier();
    const prefixes: string[] = [];
    for (let left = 1 + random.integer(6); left > 0; left--) {
      const candidates = this.#evictable(namespace, tier);
      if (candidates.length === 0) break;
      const key = pick(random, candidates);
      const block = this.#blocks.get(key)!;
      block.tiers.delete(tier);
      if (block.tiers.size === 0) this.#blocks.delete(key);
      prefixes.push(block.prefix);
    }
    // SGLang names parents before children; order must not matter.
    return feed.removedAs({ namespace, tier }, ...prefixes.sort());
  }

  #evictable(namespace: string, tier: number): string[] {
    const inTier = [...this.#blocks].filter(([, block]) => block.namespace === namespace && block.tiers.has(tier));
    if (!this.#options.evictsLeaves) return inTier.map(([key]) => key);
    const isLeaf = (prefix: string): boolean =>
      !inTier.some(([, block]) => block.prefix.length > prefix.length && block.prefix.startsWith(prefix));
    return inTier.filter(([, { prefix }]) => isLeaf(prefix)).map(([key]) => key);
  }

  #move(): TestEvent {
    const { feed, random, namespaces } = this.#options;
    const tier = this.#tier();
    const unnamespaced = [...this.#blocks.values()].filter(({ namespace }) => namespace === namespaces[0]);
    if (unnamespaced.length === 0) return feed.moved(tier);
    const block = pick(random, unnamespaced);
    block.tiers.add(tier);
    return feed.moved(tier, block.prefix);
  }

  #tier(): number {
    const { random, tiers } = this.#options;
    return random.integer(3) > 0 ? tiers[0]! : pick(random, tiers);
  }
}

/** Whether a router block is in one of the engine's, or all of its own engine blocks are there. */
function isWhole(block: string, held: ReadonlySet<string>, { engineUnits, routerUnits }: PromptFeed): boolean {
  if (engineUnits >= routerUnits) {
    const units = Math.ceil(block.length / engineUnits) * engineUnits;
    for (const prefix of held) if (prefix.length === units && prefix.startsWith(block)) return true;
    return false;
  }
  for (let end = block.length; end > block.length - routerUnits; end -= engineUnits) {
    if (!held.has(block.slice(0, end))) return false;
  }
  return true;
}

const pick = <T>(random: Random, of: readonly T[]): T => of[random.integer(of.length)]!;
