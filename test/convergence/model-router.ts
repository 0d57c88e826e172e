import { asRouterId, type Random, silentLogger } from "@espalier/core";
import type { Backend, ReplicaPorts } from "@espalier/mesh";
import { createPrefixIndex, type PrefixIndex, tier } from "@espalier/prefix-index";
import {
  createReplica,
  createTargetSlots,
  type FeedRole,
  Ownership,
  type Replica,
  type TargetSlots,
} from "@espalier/shared-tree";
import { createSeriesMeter } from "@espalier/testing";
import type { Environment } from "./environment.ts";
import { chainOf, type ModelEngine, wordsOf } from "./model-engine.ts";
import { ModelFeed } from "./model-feed.ts";

const maxTargets = 64;

export interface ModelRouterOptions {
  readonly name: string;
  readonly environment: Environment;
  readonly engines: readonly ModelEngine[];
  readonly random: Random;
  /** The longest time that an engine's message is on its way. */
  readonly feedDelayMs: number;
  readonly canReplay: boolean;
  /** Stands between the replica and what carries its state. */
  readonly wrapPorts?: (ports: ReplicaPorts) => ReplicaPorts;
}

/** A router without its HTTP side: replica, ownership of feeds and backend, wired as the server wires them. */
export class ModelRouter {
  readonly name: string;
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  readonly replica: Replica;
  readonly backend: Backend;
  readonly ownership: Ownership;
  readonly feeds = new Map<string, ModelFeed>();
  /** Requests in flight here, by target. */
  readonly load = new Map<string, number>();
  readonly meter = createSeriesMeter();
  isAlive = true;
  readonly #options: ModelRouterOptions;

  constructor(options: ModelRouterOptions) {
    const { name, environment, engines, random, wrapPorts } = options;
    const { clock, scheduler } = environment;
    this.#options = options;
    this.name = name;
    this.index = createPrefixIndex({ maxTargets, maxBlocks: 65_536, maxSets: 4_096 });
    this.slots = createTargetSlots(maxTargets);
    const ports = { clock, scheduler, logger: silentLogger, meter: this.meter };
    const shared = { router: asRouterId(name), index: this.index, slots: this.slots, placementTtlMs: 600_000 };
    this.replica = createReplica({ ...ports, ...shared });
    const { ports: carried } = this.replica;
    this.backend = environment.createBackend({ name, replica: wrapPorts?.(carried) ?? carried, random });
    this.ownership = new Ownership({
      ...ports,
      self: () => this.replica.ports.origin,
      members: () => this.backend.members(),
      feeds: this.replica.feeds,
      onRole: (target, role) => this.#setRole(target, role),
    });
    for (const { key } of engines) this.slots.slotOf(key);
    this.backend.onMembers(() => this.#membersChanged());
    this.replica.feeds.onClaims((target) => this.ownership.claimsChanged(target));
  }

  async start(): Promise<void> {
    await this.replica.start();
    for (const { key } of this.#options.engines) this.ownership.addTarget(key);
    this.ownership.start();
    await this.backend.start();
    this.#membersChanged();
  }

  /** Ends without a word to anybody. */
  async kill(): Promise<void> {
    this.isAlive = false;
    this.#options.environment.kill(this.name);
    await this.#end();
  }

  async leave(): Promise<void> {
    this.isAlive = false;
    this.ownership.stop();
    await this.backend.leave();
    await this.#end();
  }

  setLoad(target: string, inFlight: number): void {
    this.load.set(target, inFlight);
    const tokens = {
      pendingPrefillTokens: inFlight * 100,
      decodeTokens: 0,
      pendingWorkMs: inFlight * 20,
      activeTokens: 0,
      lendingTokens: 0,
      yieldingInFlight: 0,
      answers: 0,
    };
    this.replica.load.set(target, { inFlight, ...tokens });
  }

  /** Predicts that a target holds the first blocks of a conversation. */
  place(target: string, conversation: number, blockCount: number): void {
    const words = chainOf(conversation, blockCount);
    this.replica.placements.place(target, words, blockCount, { ttlMs: 600_000, isConfirmed: false });
  }

  /** Blocks that the index says an engine holds. */
  held({ key, blocks }: ModelEngine): number[] {
    const slot = this.slots.find(key);
    const lows = wordsOf(Array.from({ length: blocks }, (_, block) => block));
    return Array.from({ length: blocks }, (_, block) => block).filter(
      (block) => slot >= 0 && this.index.findByLow(slot, tier.gpu, lows[block * 2]!) > 0,
    );
  }

  async #end(): Promise<void> {
    this.ownership.stop();
    for (const feed of this.feeds.values()) feed.stop();
    this.feeds.clear();
    await this.backend.stop();
    await this.replica.stop();
  }

  #membersChanged(): void {
    if (!this.isAlive) return;
    this.replica.setMembers(this.backend.members());
    this.ownership.membersChanged();
  }

  #setRole(target: string, role: FeedRole): void {
    const known = this.feeds.get(target);
    if (role === "none") {
      this.feeds.delete(target);
      known?.stop();
      this.ownership.setQuality(target, "none");
      return;
    }
    const feed = known ?? this.#open(target);
    feed.reader.setRole(role);
  }

  #open(target: string): ModelFeed {
    const { engines, random, environment, feedDelayMs, canReplay } = this.#options;
    const engine = engines.find(({ key }) => key === target)!;
    const { scheduler } = environment;
    const feed = new ModelFeed({
      ...{ engine, random, scheduler, maxDelayMs: feedDelayMs, canReplay },
      open: (tellAll) => this.replica.openFeed(target, tellAll),
      onQuality: (quality) => this.ownership.setQuality(target, quality),
    });
    this.feeds.set(target, feed);
    return feed;
  }
}
