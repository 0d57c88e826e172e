import { asRouterId, createSeededRandom } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import { createPrefixIndex, type LedgerSink, type PrefixIndex, tier } from "@espalier/prefix-index";
import { type CountingMeter, createCountingMeter, createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { expect } from "vitest";
import { Journals } from "../../src/documents/journal-store.ts";
import { FactFold } from "../../src/facts/fact-fold.ts";
import { createTargetSlots } from "../../src/facts/target-slots.ts";
import type { FeedClaim } from "../../src/feeds/feed-claim.ts";
import { createFeedReader, type FeedReader } from "../../src/feeds/feed-reader.ts";
import type { FeedReaderLimits } from "../../src/feeds/feed-writer.ts";
import { type EngineMessage, ModelEngine, wordsOf } from "./model-engine.ts";

export const target = "engine/0";
const slot = 0;

/** A router with journals, a fold, and one reader that is fed by hand. */
export class RigRouter {
  readonly index: PrefixIndex = createPrefixIndex({ maxTargets: 4 });
  readonly store: Journals;
  readonly fold: FactFold;
  readonly meter: CountingMeter = createCountingMeter();
  readonly reader: FeedReader;
  /** Blocks that its ledger knows. */
  readonly ledger = new Set<number>();
  readonly needs: string[] = [];
  readonly claims = new Map<string, { origin: Origin; claim: FeedClaim }>();
  readonly #logger = createRecordingLogger();
  readonly #rig: FeedRig;
  /** Messages of the present process that were read or lost. */
  #read = 0;
  /** Whether none was lost. */
  isComplete = true;

  constructor(rig: FeedRig, name: string, limits: Partial<FeedReaderLimits>, takeCheckpointTurn: () => boolean) {
    this.#rig = rig;
    const router = asRouterId(name);
    const { clock } = rig.time;
    const slots = createTargetSlots(4);
    this.store = new Journals({ origin: { router, epoch: 1 }, clock });
    const reload = (key: string): void => void this.needs.push(key);
    this.fold = new FactFold({ index: this.index, slots, self: router, reload, clock });
    this.reader = createFeedReader({
      ...{ key: target, journal: this.store.own, fold: this.fold, index: this.index, slots, clock, limits },
      tellAll: (sink) => this.#tellAll(sink),
      stamp: () => clock.wallMs(),
      claimsOf: () => [...this.claims.values(), ...this.#ownClaims()],
      takeCheckpointTurn,
      logger: this.#logger,
      meter: this.meter,
    });
    this.fold.onChange(() => this.reader.foldChanged());
    this.store.observe({
      feedDeclared: (_origin, _feed, declaration) => this.fold.declare(declaration),
      claimChanged: (origin, _key, claim) => {
        if (claim) this.claims.set(originKey(origin), { origin, claim });
        else this.claims.delete(originKey(origin));
        if (claim) this.reader.claimSeen(origin, claim);
      },
      facts: (origin, entries, declarationOf) => {
        this.fold.apply(origin, entries, declarationOf);
        for (const entry of entries) {
          const epoch = declarationOf(entry.feed)?.epoch;
          if (epoch) this.reader.factsSeen(origin, epoch, [entry]);
        }
      },
      placements: () => {},
      journalDropped: () => {},
    });
  }

  /** How often it has taken the feed over. */
  get claimed(): number {
    return this.#logger.lines.filter(({ message }) => message === "reading a feed for the mesh").length;
  }

  /** Reads the next messages of the engine, `count` or all there are. */
  read(count = Number.POSITIVE_INFINITY): void {
    for (let left = count; left > 0; left--) {
      const message = this.#rig.engine.messages[this.#read];
      if (!message) return;
      this.#read++;
      this.apply(message);
    }
  }

  /** Loses the next messages. */
  miss(count: number): void {
    this.#read += count;
    this.isComplete = false;
  }

  /** Loses the next messages if there are so many. Returns whether there were. */
  skip(count: number): boolean {
    if (this.#read === 0 || this.#read + count >= this.#rig.engine.messages.length) return false;
    this.miss(count);
    return true;
  }

  /** Notices that the engine is another process. */
  notice(): void {
    this.ledger.clear();
    this.#read = 0;
    this.isComplete = true;
    this.reader.newEpoch();
  }

  apply({ stored, removed, ...mark }: EngineMessage): void {
    const news = stored.filter((block) => !this.ledger.has(block));
    const gone = removed.filter((block) => this.ledger.has(block));
    for (const block of news) this.ledger.add(block);
    for (const block of gone) this.ledger.delete(block);
    if (news.length > 0) this.reader.sink.stored(tier.gpu, wordsOf(news), 0, news.length);
    if (gone.length > 0) this.reader.sink.removed(tier.gpu, wordsOf(gone), 0, gone.length);
    if (gone.length < removed.length) this.reader.unknownRemovals(removed.length - gone.length);
    this.reader.batch(mark, this.isComplete);
  }

  /** Blocks that its index says the target holds, of those that the engine can have. */
  held(): number[] {
    const held: number[] = [];
    for (let block = 0; block < 2_000; block++) {
      const low = wordsOf([block])[0]!;
      if (this.index.findByLow(slot, tier.gpu, low) > 0) held.push(block);
    }
    return held;
  }

  digest(): string {
    return this.index.digest(slot).join();
  }

  takeovers(how: "records" | "state"): number {
    return this.meter.value("espalier_feed_takeovers_total", how);
  }

  get checkpoints(): number {
    return this.meter.value("espalier_feed_checkpoints_total");
  }

  #tellAll(sink: LedgerSink): void {
    const blocks = [...this.ledger];
    if (blocks.length > 0) sink.stored(tier.gpu, wordsOf(blocks), 0, blocks.length);
  }

  #ownClaims(): { origin: Origin; claim: FeedClaim }[] {
    const { origin, claims } = this.store.own;
    return [...claims.values()].map((claim) => ({ origin, claim }));
  }
}

/** Routers that carry each other's journals by hand, and the engine that they read. */
export class FeedRig {
  readonly time = createVirtualTime();
  readonly random;
  readonly engine: ModelEngine;
  readonly routers: RigRouter[] = [];
  /** Routers that nothing reaches, and that reach nobody. */
  readonly apart = new Set<RigRouter>();

  constructor(seed = 1, blocks = 400) {
    this.random = createSeededRandom(seed);
    this.engine = new ModelEngine(this.random, blocks);
  }

  add(name: string, limits: Partial<FeedReaderLimits> = {}, takeCheckpointTurn = (): boolean => true): RigRouter {
    const router = new RigRouter(this, name, limits, takeCheckpointTurn);
    this.routers.push(router);
    return router;
  }

  publish(count: number): void {
    for (let message = 0; message < count; message++) this.engine.next();
  }

  /** These read all that the engine has published; then every router commits, and gets what it lacks of the others. */
  exchange(...readers: RigRouter[]): void {
    for (const router of readers) router.read();
    this.time.advance(15);
    for (const router of this.routers) {
      router.reader.maintain();
      router.store.own.commit();
    }
    const linked = this.routers.filter((router) => !this.apart.has(router));
    for (const from of linked) for (const to of linked) if (from !== to) carry(from.store, to.store);
    for (const router of linked) this.#load(router, linked);
  }

  /** Until nothing changes any more, as time passes. */
  settle(): void {
    for (let round = 0; round < 8; round++) {
      this.time.advance(500);
      for (const router of this.routers) router.fold.maintain();
      this.exchange();
    }
  }

  /** Every router holds what the engine holds, and knows it. */
  expectTruth(routers = this.routers): void {
    const truth = [...this.engine.held].sort((one, other) => one - other);
    for (const router of routers) {
      const { origin } = router.store.own;
      expect(router.held(), `held by ${origin.router}`).toEqual(truth);
      expect(router.fold.state(target), `fold of ${origin.router}`).toMatchObject({
        isComplete: true,
        progress: "current",
      });
    }
    this.expectEqual(routers);
  }

  expectEqual(routers = this.routers): void {
    expect(new Set(routers.map((router) => router.digest())).size).toBe(1);
  }

  owners(): string[] {
    return this.routers.filter(({ reader }) => reader.role === "owner").map(({ store }) => store.own.origin.router);
  }

  #load(router: RigRouter, others: readonly RigRouter[]): void {
    if (router.needs.splice(0).length === 0) return;
    const from = others.find((other) => other !== router && other.fold.state(target)?.progress !== "loading");
    if (!from) {
      router.fold.giveUpLoading([target]);
      return;
    }
    const snapshot = router.fold.beginImport();
    for (const frame of from.fold.exportFrames(262_144, [target])) snapshot.frame(frame);
    if (!snapshot.end().includes(target)) router.fold.giveUpLoading([target]);
  }
}

function carry(from: Journals, to: Journals): void {
  for (const { name } of from.list()) {
    for (const update of from.diff(name, to.stateVector(name), 1_000_000)) to.apply(update);
  }
}

/** Three routers: an owner, its backup, and one that reads nothing. */
export function pair(seed = 1, limits = {}) {
  const rig = new FeedRig(seed);
  const [a, b, c] = [rig.add("a", limits), rig.add("b", limits), rig.add("c", limits)];
  a.reader.setRole("owner");
  b.reader.setRole("backup");
  return { rig, a, b, c };
}
