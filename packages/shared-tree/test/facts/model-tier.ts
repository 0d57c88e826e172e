import type { Random } from "@espalier/core";
import type { SnapshotSink } from "@espalier/mesh";

import { target } from "./fold-harness.ts";
import { createForest, type Forest, ModelEngine } from "./model-engine.ts";
import { ModelRouter } from "./model-router.ts";

const names = ["a", "b", "c", "d"];
/** Frames of a snapshot are as small as they can be, so that much happens between them. */
const frameBytes = 65_536;

/** Snapshots that did not bring what was asked for, before it is given up. */
const maxFruitless = 3;

interface Transfer {
  readonly to: ModelRouter;
  readonly frames: Iterator<Uint8Array>;
  readonly snapshot: SnapshotSink;
}

/** Routers that fold one engine's feed together, with a network between them that delivers in any order. */
export class ModelTier {
  readonly forest: Forest;
  readonly engine: ModelEngine;
  readonly routers: ModelRouter[] = [];
  /** What was seen to happen, for tests that must know that they test something. */
  readonly seen = { reloads: 0, imports: 0, aborts: 0, givenUp: 0, restarts: 0 };
  readonly #random: Random;
  readonly #epochs = new Map<string, number>();
  /** Whether snapshots fail now and then. */
  isFaulty = true;
  #transfers: Transfer[] = [];

  constructor(random: Random) {
    this.#random = random;
    this.forest = createForest(random, { blocks: 50, equalLowsEvery: 0 });
    this.engine = new ModelEngine(this.forest, random);
    for (const name of names.slice(0, 2 + random.integer(2)))
      this.routers.push(new ModelRouter(name, this.forest, this.#epochs));
    this.routers[0]!.isOwner = true;
  }

  get living(): ModelRouter[] {
    return this.routers.filter(({ isAlive }) => isAlive);
  }

  step(): void {
    const random = this.#random;
    const dice = random.integer(100);
    if (dice < 40) this.#message();
    else if (dice < 75) this.#deliver();
    else if (dice < 80) this.#pick(this.living.filter(({ isOwner }) => isOwner))?.checkpoint();
    else if (dice < 95) this.#transfer();
    else this.#disturb(random.integer(6));
  }

  /** Delivers everything, and serves every reload. */
  settle(): void {
    for (let round = 0; round < 4_000; round++) {
      this.#ask();
      if (this.#transfers.length > 0) this.#transfer();
      else if (!this.#deliver()) return;
    }
    throw new Error("the routers do not come to rest");
  }

  message(): void {
    const message = this.engine.message();
    for (const router of this.living) router.take(message);
  }

  #message(): void {
    const message = this.engine.message();
    for (const router of this.living) {
      if (router.pausedFor > 0) router.pausedFor--;
      else if (this.#random.integer(40) > 0) router.take(message);
    }
  }

  /** @returns false when there is nothing to deliver */
  #deliver(): boolean {
    const pairs = this.living.flatMap((to) =>
      this.routers.filter((from) => from !== to && !to.hasReadAllOf(from)).map((from) => ({ to, from })),
    );
    const pair = this.#pick(pairs);
    pair?.to.readFrom(pair.from, 1 + this.#random.integer(10));
    return pair !== undefined;
  }

  #disturb(kind: number): void {
    const random = this.#random;
    const router = this.#pick(this.living)!;
    if (kind === 0 && random.integer(3) === 0) {
      this.engine.restart();
      this.seen.restarts++;
    } else if (kind === 1) {
      for (const other of this.routers) other.isOwner = false;
      router.takeOver();
    } else if (kind === 2) router.takeOver();
    else if (kind === 3) router.pausedFor = random.integer(20);
    else if (kind === 4 && this.living.length > 2 && random.integer(2) === 0) router.isAlive = false;
    else if (this.routers.length < names.length) this.#join();
  }

  #join(): void {
    const router = new ModelRouter(names[this.routers.length]!, this.forest, this.#epochs);
    this.routers.push(router);
    this.#begin(router, undefined);
  }

  /** Begins to serve what routers have asked for. */
  #ask(): void {
    for (const router of this.living) {
      for (const { from } of router.harness.reloads.splice(0)) {
        this.seen.reloads++;
        this.#begin(router, from?.router);
      }
      const isServed = this.#transfers.some(({ to }) => to === router);
      if (!isServed && router.harness.fold.state(target)?.progress === "loading") this.#begin(router, undefined);
    }
  }

  #begin(to: ModelRouter, name: string | undefined): void {
    const sources = this.living.filter(
      (other) => other !== to && other.harness.fold.state(target)?.progress !== "loading",
    );
    const from = sources.find(({ origin }) => origin.router === name) ?? this.#pick(sources);
    if (!from || to.fruitless >= maxFruitless || (this.isFaulty && this.#random.integer(12) === 0)) {
      to.fruitless = 0;
      to.harness.fold.giveUpLoading([target]);
      this.seen.givenUp++;
      return;
    }
    const frames = from.harness.fold.exportFrames(frameBytes, this.#random.integer(2) === 0 ? [target] : undefined);
    this.#transfers.push({ to, frames, snapshot: to.harness.fold.beginImport() });
  }

  /** Brings one frame of one snapshot. */
  #transfer(): void {
    this.#ask();
    const transfer = this.#pick(this.#transfers);
    if (!transfer) return;
    const { to, frames, snapshot } = transfer;
    const { value, done } = frames.next();
    if (!done && to.isAlive && !(this.isFaulty && this.#random.integer(25) === 0)) {
      snapshot.frame(value);
      return;
    }
    this.#transfers = this.#transfers.filter((other) => other !== transfer);
    if (done) {
      to.fruitless = snapshot.end().length > 0 ? 0 : to.fruitless + 1;
      this.seen.imports++;
    } else {
      snapshot.abort();
      this.seen.aborts++;
    }
  }

  #pick<T>(from: readonly T[]): T | undefined {
    return from[this.#random.integer(Math.max(1, from.length))];
  }
}
