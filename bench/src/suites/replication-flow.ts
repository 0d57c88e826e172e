import type { DocumentUpdate } from "@espalier/mesh";
import type { VirtualTime } from "@espalier/testing";
import { livingMember, newTime, opsOf, playStep, type RecordedStep, RigRouter, recordStep } from "./replication-rig.ts";

export interface FlowShape {
  /** Routers that read feeds; the first one is measured. */
  readonly owners: number;
  /** Over all owners. */
  readonly feeds: number;
  readonly blocksPerFeed: number;
  readonly tickMs: number;
  readonly seed: number;
}

/** The cost of applying one tick's changes in the measured router. */
export interface FlowTick {
  readonly ownOps: number;
  readonly othersOps: number;
  readonly ownMs: number;
  readonly othersMs: number;
  /** Of the other routers' updates. */
  readonly yjsBytes: number;
}

interface Due {
  readonly router: RigRouter;
  readonly feed: number;
  readonly step: RecordedStep;
}

/**
 * Routers in one process and in virtual time. All but the first only write. The first one applies the commits of all
 * others and writes its own share. Synthetic messages are created before the clock runs.
 */
export class ReplicationFlow {
  readonly measured: RigRouter;
  readonly #writers: readonly RigRouter[];
  readonly #othersTime: VirtualTime = newTime();
  readonly #shape: FlowShape;
  /** Measures the time of the work, in milliseconds. */
  readonly #readMs: () => number;
  #nextFeed = 0;

  constructor(shape: FlowShape, readMs: () => number) {
    const { owners, feeds, blocksPerFeed, tickMs, seed } = shape;
    this.#shape = shape;
    this.#readMs = readMs;
    this.measured = new RigRouter("router-0", newTime(), tickMs);
    const others = Array.from({ length: owners - 1 }, (_, at) => at + 1);
    this.#writers = others.map((at) => new RigRouter(`router-${at}`, this.#othersTime, tickMs));
    const all = [this.measured, ...this.#writers];
    for (let feed = 0; feed < feeds; feed++) all[feed % owners]!.open(`engine-${feed}/0`, blocksPerFeed, seed);
    this.measured.replica.setMembers(this.#writers.map(livingMember));
  }

  /** Fills every engine, a few messages of each feed per tick. */
  fill(): void {
    let isFilling = true;
    while (isFilling) {
      isFilling = false;
      const due: Due[] = [];
      for (const router of [this.measured, ...this.#writers]) {
        for (const [feed, { feed: engine }] of router.feeds.entries()) {
          for (let message = 0; message < fillMessages && !engine.isFull; message++) {
            due.push({ router, feed, step: recordStep(engine) });
            isFilling = true;
          }
        }
      }
      this.#run(due);
    }
  }

  /** Changes at least this many blocks, over all feeds in turn, and lets a tick pass. */
  tick(ops: number): FlowTick {
    const due: Due[] = [];
    const { owners, feeds } = this.#shape;
    const all = [this.measured, ...this.#writers];
    for (let done = 0; done < ops; ) {
      const at = this.#nextFeed++ % feeds;
      const router = all[at % owners]!;
      const feed = Math.floor(at / owners);
      const step = recordStep(router.feeds[feed]!.feed);
      due.push({ router, feed, step });
      done += opsOf(step);
    }
    return this.#run(due);
  }

  /** @throws Error when the measured router's blocks differ from the engines' */
  check(): void {
    for (const router of [this.measured, ...this.#writers]) {
      for (const { target, feed } of router.feeds) {
        const state = this.measured.replica.fold.state(target);
        const stated = this.measured.replica.fold.statement(target);
        const own = router.replica.fold.statement(target);
        if (!state?.isComplete || stated?.blocks !== feed.blocks || stated.digest.join() !== own?.digest.join()) {
          throw new Error(`${target} has ${stated?.blocks} blocks (${state?.progress}), its engine ${feed.blocks}`);
        }
      }
    }
  }

  stop(): void {
    for (const { replica } of [this.measured, ...this.#writers]) void replica.stop();
  }

  #run(due: readonly Due[]): FlowTick {
    const { tickMs } = this.#shape;
    const own = due.filter(({ router }) => router === this.measured);
    const others = due.filter(({ router }) => router !== this.measured);
    play(others);
    this.#othersTime.advance(tickMs);
    const updates = this.#writers.flatMap(({ outbox }) => outbox.splice(0));
    const yjsBytes = updates.reduce((sum, { bytes }) => sum + bytes.length, 0);
    const received = updates.map((update): DocumentUpdate => ({ ...update, bytes: update.bytes.slice() }));
    const startMs = this.#readMs();
    this.measured.take(received);
    const takenMs = this.#readMs();
    play(own);
    this.measured.time.advance(tickMs);
    const endMs = this.#readMs();
    this.measured.outbox.length = 0;
    const sum = (steps: readonly Due[]): number => steps.reduce((total, { step }) => total + opsOf(step), 0);
    return {
      ownOps: sum(own),
      othersOps: sum(others),
      ownMs: endMs - takenMs,
      othersMs: takenMs - startMs,
      yjsBytes,
    };
  }
}

/** Messages of a feed in one tick while engines fill: about 130 blocks. */
const fillMessages = 16;

function play(due: readonly Due[]): void {
  for (const { router, feed, step } of due) {
    const { feed: engine, reader } = router.feeds[feed]!;
    playStep(step, reader.sink);
    reader.batch(engine.mark(router.time.clock.wallMs() * 1_000), true);
  }
}
