import type { FactsGroup, PrefixIndex } from "@espalier/prefix-index";
import type { SnapshotSink } from "../replica-ports.ts";
import { epochId } from "./engine-epoch.ts";
import type { IndexSink } from "./index-sink.ts";
import { maxSnapshotTargets, readSnapshotFrame, type SnapshotFrame, type SnapshotStamp } from "./snapshot-codec.ts";
import type { TargetFold } from "./target-fold.ts";

export interface SnapshotImportOptions {
  readonly index: PrefixIndex;
  readonly sink: Pick<IndexSink, "noteHoles">;
  /** The fold of a target, which may be new here; undefined when there is no capacity for it. */
  readonly foldOf: (target: string) => TargetFold | undefined;
  /** Called with every target that the import touched. */
  readonly touched: (fold: TargetFold) => void;
}

interface Incoming {
  readonly fold: TargetFold;
  /** The generation that the blocks are for; undefined when the target does not need them. */
  readonly generation: number | undefined;
}

/** Takes the frames of one snapshot, and puts useful parts into the index as they arrive. */
export class SnapshotImport implements SnapshotSink {
  readonly #options: SnapshotImportOptions;
  /** By number; undefined where there is no capacity for the target or its epoch is not the newest. */
  readonly #incoming: (Incoming | undefined)[] = [];
  #groups = 0;
  #expected = 0;
  #isWhole = false;
  #isOver = false;

  constructor(options: SnapshotImportOptions) {
    this.#options = options;
  }

  frame(bytes: Uint8Array): void {
    if (this.#isOver) throw new RangeError("the import is over");
    try {
      this.#take(readSnapshotFrame(bytes));
    } catch (error) {
      this.abort();
      throw error;
    }
  }

  end(): readonly string[] {
    if (this.#isOver) return [];
    if (!this.#isWhole) {
      this.abort();
      return [];
    }
    this.#isOver = true;
    this.#expect(0);
    const done: string[] = [];
    for (const incoming of this.#incoming) {
      if (!incoming) continue;
      const { fold, generation } = incoming;
      if (generation === fold.generation) {
        fold.endImport();
        this.#options.touched(fold);
      }
      if (fold.progress !== "loading") done.push(fold.key);
    }
    return done;
  }

  abort(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#expect(0);
    for (const [number] of this.#incoming.entries()) this.#giveUp(number);
  }

  #take(frame: SnapshotFrame): void {
    if (this.#isWhole) throw new RangeError("a frame after the end");
    if (frame.kind === "stamps") {
      if (frame.blocks !== undefined) this.#expect(frame.blocks);
      for (const stamp of frame.stamps) this.#stamp(stamp);
    } else if (frame.kind === "groups") this.#import(frame.groups);
    else {
      if (frame.stamps !== this.#incoming.length || frame.groups !== this.#groups) {
        throw new RangeError("a part of the snapshot is missing");
      }
      if (frame.voided.some((number) => number >= frame.stamps)) throw new RangeError("an unknown target is void");
      for (const number of frame.voided) this.#giveUp(number);
      this.#isWhole = true;
    }
  }

  /** Growing once is much cheaper than growing block by block. */
  #expect(blocks: number): void {
    if (blocks === this.#expected) return;
    this.#expected = blocks;
    this.#options.index.expectFacts(blocks);
  }

  #stamp({ target, epoch, point }: SnapshotStamp): void {
    if (this.#groups > 0) throw new RangeError("a stamp after the first blocks");
    if (this.#incoming.length >= maxSnapshotTargets) throw new RangeError("too many targets");
    const fold = this.#options.foldOf(target);
    fold?.declare(epoch);
    if (fold) this.#options.touched(fold);
    if (!fold || fold.epoch?.id !== epochId(epoch)) this.#incoming.push(undefined);
    else this.#incoming.push({ fold, generation: fold.canUse(point) ? fold.beginImport(point) : undefined });
  }

  #import(groups: readonly FactsGroup[]): void {
    const numbers = this.#incoming.length;
    if (groups.some(({ targets }) => targets.some((number) => number >= numbers))) {
      throw new RangeError("blocks of an unknown target");
    }
    this.#groups += groups.length;
    const wanted: FactsGroup[] = [];
    for (const { targets, part } of groups) {
      const slots = targets.map((number) => this.#slotOf(number)).filter((slot) => slot >= 0);
      if (slots.length > 0) wanted.push({ targets: slots, part });
      if (part.kind !== "blocks") for (const slot of slots) this.#options.sink.noteHoles(slot);
    }
    this.#options.index.importChunk(wanted);
  }

  /** @returns -1 when the target does not need blocks */
  #slotOf(number: number): number {
    const incoming = this.#incoming[number];
    return incoming?.generation !== undefined && incoming.generation === incoming.fold.generation
      ? incoming.fold.slot
      : -1;
  }

  #giveUp(number: number): void {
    const incoming = this.#incoming[number];
    if (this.#slotOf(number) < 0 || !incoming) return;
    incoming.fold.abortImport();
    this.#options.touched(incoming.fold);
  }
}
