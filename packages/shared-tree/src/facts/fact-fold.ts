import { type Cancel, type Clock, type Meter, type RouterId, silentMeter } from "@espalier/core";
import type { FoldStatement, Origin, SnapshotSink } from "@espalier/mesh";
import { subscribe } from "@espalier/mesh";
import type { LedgerSink, PrefixIndex } from "@espalier/prefix-index";
import { type BatchMark, type EngineEpoch, epochId, type KnownEpoch, markOf, never } from "./engine-epoch.ts";
import type { FactEntry } from "./fact-item.ts";
import type { DeclarationOf, FeedDeclaration } from "./feed-declaration.ts";
import {
  createFoldMeters,
  defaultFoldLimits,
  type FoldContext,
  type FoldLimits,
  type FoldMeters,
} from "./fold-context.ts";
import { IndexSink } from "./index-sink.ts";
import { exportSnapshot, SnapshotImport } from "./snapshots.ts";
import { contentOf, TargetFold } from "./target-fold.ts";
import type { TargetSlots } from "./target-slots.ts";

/** How far a target's facts are folded. */
export interface FoldState {
  readonly target: string;
  /** Newest epoch that is known; undefined before any. */
  readonly epoch: EngineEpoch | undefined;
  /** The latest message that is applied; undefined while none is. */
  readonly last: BatchMark | undefined;
  /** Whether it includes every message of the epoch up to `last`. */
  readonly isComplete: boolean;
  /**
   * `current`: all known messages are applied. `waiting`: later messages are there, earlier ones are not. `open`: a gap
   * was skipped that may still be filled. `loading`: waits for a snapshot.
   */
  readonly progress: "current" | "waiting" | "open" | "loading";
}

/** Why the state of targets must be fetched from another replica. */
export type ReloadReason = "behind-cut" | "digest-mismatch" | "overflow" | "unknown-base";

/** A target's whole state, by the ledger of this router's own reader of its feed. */
export interface FoldReplacement {
  readonly target: string;
  /** Declared in the own journal, and to the fold. */
  readonly epoch: EngineEpoch;
  /** The latest message that is in the state. */
  readonly mark: BatchMark;
  /** Whether the reader has read every message of the epoch up to the mark. */
  readonly isComplete: boolean;
  /** Passes everything that the target holds to a sink that holds nothing, parents before children. */
  readonly tellAll: (sink: LedgerSink) => void;
}

export interface FactFoldOptions {
  /** Only the fold writes facts to it. */
  readonly index: PrefixIndex;
  readonly slots: TargetSlots;
  /** This router: its own checkpoints are never a reason to doubt its state. */
  readonly self: RouterId;
  /**
   * Called once per need. The target is `loading` until an import brings it, or until `giveUpLoading` says that no
   * router has it.
   *
   * @param from who stated what this replica lacks
   */
  readonly reload: (target: string, reason: ReloadReason, from: Origin | undefined) => void;
  readonly clock: Clock;
  readonly meter?: Meter;
  readonly limits?: Partial<FoldLimits>;
}

/** What a declaration denotes. */
interface FoundFeed {
  readonly fold: TargetFold;
  readonly epoch: KnownEpoch;
}

interface Need {
  readonly target: string;
  readonly reason: ReloadReason;
  readonly from: Origin | undefined;
}

/**
 * Keeps the facts of a prefix index equal to what journals say. For each target it folds the set of the newest epoch's
 * records, in the order of the engine's sequence numbers, whoever wrote them and in whatever order they arrive.
 *
 * Begins with no target.
 */
export class FactFold {
  readonly #slots: TargetSlots;
  readonly #reload: FactFoldOptions["reload"];
  readonly #meters: FoldMeters;
  readonly #context: FoldContext;
  /**
   * By the declarations that journals hold: a journal owns its numbers, and when it drops one, the entry goes here too.
   */
  readonly #found = new WeakMap<FeedDeclaration, FoundFeed>();
  readonly #targets = new Map<string, TargetFold>();
  readonly #listeners = new Set<(target: string) => void>();
  /** Folds to report on once everything is applied. */
  readonly #touched = new Set<TargetFold>();
  #asked: Need[] = [];
  #isTelling = false;

  constructor(options: FactFoldOptions) {
    const { index, clock, self } = options;
    const limits = { ...defaultFoldLimits, ...options.limits };
    const meters = createFoldMeters(options.meter ?? silentMeter);
    this.#slots = options.slots;
    this.#reload = options.reload;
    this.#meters = meters;
    const sink = new IndexSink(index, meters);
    this.#context = { index, sink, limits, meters, clock, self, waiting: { total: 0 }, kept: { total: 0 } };
  }

  /** Bytes of waiting records and kept states, without the index. */
  get byteLength(): number {
    return this.#context.waiting.total + this.#context.kept.total;
  }

  state(target: string): FoldState | undefined {
    const fold = this.#targets.get(target);
    return fold && stateOf(fold);
  }

  *states(): Generator<FoldState, void, undefined> {
    for (const fold of this.#targets.values()) yield stateOf(fold);
  }

  /** Ids of epochs that are dated later than this one and do not follow it. To be the newest, it must name them. */
  outranking(target: string, epoch: BatchMark): readonly string[] {
    return this.#targets.get(target)?.outranking(epoch) ?? [];
  }

  /** A statement for a settled target, that is a `current` one. */
  statement(target: string): FoldStatement | undefined {
    const fold = this.#targets.get(target);
    return fold?.progress === "current" ? statementOf(this.#context.index, fold) : undefined;
  }

  /**
   * What a checkpoint of the target would state now. Unlike `statement` it answers while the fold is `open` too, so
   * that the router responsible for the target can close a gap that no other router fills.
   */
  checkpointStatement(target: string): FoldStatement | undefined {
    const fold = this.#targets.get(target);
    const isFolded = fold?.progress === "current" || fold?.progress === "open";
    return isFolded ? statementOf(this.#context.index, fold) : undefined;
  }

  /** Compares another replica's statement; a difference at the same epoch and sequence reloads the target. */
  compare(statement: FoldStatement, from: Origin): "equal" | "different" | "not-comparable" {
    const fold = this.#targets.get(statement.target);
    if (fold?.progress !== "current" || fold.epoch?.id !== statement.epoch) return "not-comparable";
    if (fold.track.last?.sequence !== statement.sequence) return "not-comparable";
    if (fold.agrees(statement)) {
      // A state that equals that of a router that has read everything lacks nothing.
      if (statement.isComplete && !fold.track.isComplete) fold.track.settle(statement.sequence, true);
      this.#touch(fold);
      this.#tell();
      return "equal";
    }
    if (statement.isComplete || !fold.track.isComplete) {
      fold.mistrust(from);
      this.#touch(fold);
      this.#tell();
    }
    return "different";
  }

  /** A journal declares an epoch. */
  declare(declaration: FeedDeclaration): void {
    if (declaration.epoch) this.#resolve(declaration, declaration.epoch);
    this.#tell();
  }

  /**
   * Applies entries in the order of the origin's journal. Own entries take the same path, before they are committed.
   */
  apply(origin: Origin, entries: readonly FactEntry[], declarationOf: DeclarationOf): void {
    for (const entry of entries) {
      const declaration = declarationOf(entry.feed);
      if (!declaration?.epoch) this.#meters.ignored("unknown-feed");
      else {
        const feed = this.#found.get(declaration) ?? this.#resolve(declaration, declaration.epoch);
        if (feed) this.#take(origin, feed, entry);
      }
    }
    this.#tell();
  }

  /**
   * Makes a target's state what this router's own reader knows, at its mark, when records do not lead there. It voids
   * what was folded, takes the reader's state, drops kept records up to the mark and applies those after it. It stops
   * waiting for a snapshot of the target. The target is `current` then, so that the reader can state a checkpoint of
   * it; the checkpoint is written to the journal and given to `apply` like every own entry.
   *
   * @returns false when the epoch is not the newest one known, in which case nothing changes
   */
  replaceState({ target, epoch, mark, isComplete, tellAll }: FoldReplacement): boolean {
    const fold = this.#targets.get(target);
    if (!fold || fold.epoch?.id !== epochId(epoch)) return false;
    const { sequence: position } = mark;
    fold.reset({ position, last: markOf(mark), incompleteFrom: isComplete ? never : epoch.sequence });
    this.#context.sink.aim(fold.slot);
    tellAll(this.#context.sink);
    fold.advance();
    this.#touch(fold);
    this.#tell();
    return true;
  }

  /** Voids everything of a target: the engine is gone for good. New entries count once the target is declared again. */
  forgetTarget(target: string): void {
    const fold = this.#targets.get(target);
    if (!fold) return;
    fold.clear();
    this.#targets.delete(target);
    this.#touched.delete(fold);
    for (const listener of this.#listeners) listener(target);
  }

  /**
   * The state of all targets, or of some, as frames of at most `maxBytes` for `beginImport` of another replica. The
   * state may change between two frames: the frames and the records after the stamps in the first frame together give
   * the state.
   */
  exportFrames(maxBytes: number, targets?: readonly string[]): Generator<Uint8Array, void, undefined> {
    const folds = targets ? targets.flatMap((target) => this.#targets.get(target) ?? []) : [...this.#targets.values()];
    return exportSnapshot(this.#context.index, new Set(folds), maxBytes);
  }

  /** Takes one snapshot; its frames must arrive in order. */
  beginImport(): SnapshotSink {
    const snapshot = new SnapshotImport({
      index: this.#context.index,
      sink: this.#context.sink,
      foldOf: (target) => this.#foldOf(target),
      touched: (fold) => this.#touch(fold),
    });
    const telling =
      <Arguments extends unknown[], Result>(call: (...args: Arguments) => Result) =>
      (...args: Arguments): Result => {
        try {
          return call(...args);
        } finally {
          this.#tell();
        }
      };
    return {
      frame: telling((bytes: Uint8Array) => snapshot.frame(bytes)),
      end: telling(() => snapshot.end()),
      abort: telling(() => snapshot.abort()),
    };
  }

  /**
   * A router asks for the state of targets, so it has none to give. Targets that wait for what this router had stated
   * continue with the state that they had: else two routers that each prefer the other's would wait for each other.
   */
  lackedBy(origin: Origin, targets: readonly string[]): void {
    for (const target of targets) {
      const fold = this.#targets.get(target);
      if (fold?.lackedBy(origin)) this.#touch(fold);
    }
    this.#tell();
  }

  /** No router can give a snapshot: the targets continue with what they have, as partial. */
  giveUpLoading(targets: readonly string[]): void {
    for (const target of targets) {
      const fold = this.#targets.get(target);
      fold?.giveUpLoading();
      if (fold) this.#touch(fold);
    }
    this.#tell();
  }

  /** Asks for the state of targets that have waited too long for missing messages. Called about once a second. */
  maintain(): void {
    for (const fold of this.#targets.values()) {
      fold.maintain();
      this.#touch(fold);
    }
    this.#tell();
  }

  /** Calls the listener when a target's newest epoch, progress or completeness changes, and when it is forgotten. */
  onChange(listener: (target: string) => void): Cancel {
    return subscribe(this.#listeners, listener);
  }

  #take(origin: Origin, { fold, epoch }: FoundFeed, entry: FactEntry): void {
    if (this.#targets.get(fold.key) !== fold) {
      this.#meters.ignored("unknown-feed");
    } else if (fold.epoch !== epoch) {
      epoch.hasMissed = true;
      this.#meters.ignored("old-epoch");
    } else if (entry.kind === "record") {
      if (fold.record(origin, entry)) this.#touch(fold);
    } else {
      if (entry.kind === "gap") fold.gap(entry);
      else fold.checkpoint(origin, entry);
      this.#touch(fold);
    }
  }

  /** Finds the fold of a feed, and gives it a slot if it had none. */
  #resolve(declaration: FeedDeclaration, epoch: EngineEpoch): FoundFeed | undefined {
    const fold = this.#foldOf(declaration.target);
    if (!fold) this.#meters.ignored("no-slot");
    if (!fold) return undefined;
    const found = { fold, epoch: fold.declare(epoch) };
    this.#found.set(declaration, found);
    this.#touch(fold);
    return found;
  }

  #foldOf(target: string): TargetFold | undefined {
    const known = this.#targets.get(target);
    if (known) return known;
    const slot = this.#slots.slotOf(target);
    if (slot < 0) return undefined;
    const ask = (_fold: TargetFold, reason: ReloadReason, from: Origin | undefined): void => {
      this.#asked.push({ target, reason, from });
    };
    const fold = new TargetFold(this.#context, ask, target, slot);
    this.#targets.set(target, fold);
    return fold;
  }

  #touch(fold: TargetFold): void {
    this.#touched.add(fold);
  }

  /** Reports what has changed. Listeners may change more, which is reported before the call returns. */
  #tell(): void {
    if (this.#touched.size === 0 && this.#asked.length === 0) return;
    for (const fold of this.#touched) fold.refold();
    if (this.#isTelling) return;
    this.#isTelling = true;
    try {
      while (this.#touched.size > 0 || this.#asked.length > 0) {
        const asked = this.#asked;
        this.#asked = [];
        for (const { target, reason, from } of asked) this.#reload(target, reason, from);
        const touched = [...this.#touched];
        this.#touched.clear();
        for (const fold of touched) this.#tellOf(fold);
      }
    } finally {
      this.#isTelling = false;
    }
  }

  #tellOf(fold: TargetFold): void {
    const now = `${fold.epoch?.id} ${fold.progress} ${fold.track.isComplete}`;
    if (now === fold.reported) return;
    fold.reported = now;
    for (const listener of this.#listeners) listener(fold.key);
  }
}

function stateOf({ key, epoch, track, progress }: TargetFold): FoldState {
  return { target: key, epoch: epoch?.epoch, last: track.last, isComplete: track.isComplete, progress };
}

function statementOf(index: PrefixIndex, { key, slot, epoch, track }: TargetFold): FoldStatement | undefined {
  if (!epoch || !track.last) return undefined;
  return {
    target: key,
    epoch: epoch.id,
    sequence: track.last.sequence,
    isComplete: track.isComplete,
    ...contentOf(index, slot),
  };
}
