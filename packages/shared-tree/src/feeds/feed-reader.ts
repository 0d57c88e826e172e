import type { Clock, Logger, Meter } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import type { LedgerSink, PrefixIndex } from "@espalier/prefix-index";
import { type BatchMark, type EngineEpoch, epochId } from "../facts/engine-epoch.ts";
import type { FactFold, FoldState } from "../facts/fact-fold.ts";
import { type FactEntry, lastMessageOf } from "../facts/fact-item.ts";
import { FactOpsWriter } from "../facts/fact-ops.ts";
import type { DeclarationOf, FeedDeclaration } from "../facts/feed-declaration.ts";
import type { TargetSlots } from "../facts/target-slots.ts";
import type { FeedRole } from "./decide-role.ts";
import { type FeedClaim, type FeedQuality, OwnClaim } from "./feed-claim.ts";
import { FeedEpoch } from "./feed-epoch.ts";
import { checkFeedLimits, type FeedReaderLimits, FeedWriter } from "./feed-writer.ts";
import { type KeptEntry, KeptRecords, lastSequenceOf, planTakeover } from "./takeover.ts";

/** What a reader writes to the own journal; see `OwnJournal`. */
export interface FeedJournal {
  readonly origin: Origin;
  declareFeed(declaration: FeedDeclaration): number;
  readonly declarationOf: DeclarationOf;
  claim(claim: FeedClaim): void;
  unclaim(target: string): void;
  writeFact(entry: FactEntry): void;
  settle(feed: number, sequence: number): void;
  retireFeed(feed: number): void;
  opsSinceCheckpoint(feed: number): number;
}

export interface FeedReaderOptions {
  /** Key of the target. */
  readonly key: string;
  readonly journal: FeedJournal;
  readonly fold: Pick<FactFold, "state" | "outranking" | "checkpointStatement" | "declare" | "apply" | "replaceState">;
  /** Owned by the fold; read only. */
  readonly index: Pick<PrefixIndex, "findByLow" | "foundHigh" | "factBlockCount">;
  readonly slots: Pick<TargetSlots, "find">;
  /** Passes everything that the ledger holds to a sink. */
  readonly tellAll: (sink: LedgerSink) => void;
  readonly clock: Clock;
  /** A hybrid logical clock's time for a claim. */
  readonly stamp: () => number;
  /** All known claims of the target, of every router. */
  readonly claimsOf: () => readonly { readonly origin: Origin; readonly claim: FeedClaim }[];
  /**
   * Whether a checkpoint may be written now; a call that returns true takes the turn. Overdue checkpoints do not ask.
   * Default: always.
   */
  readonly takeCheckpointTurn?: () => boolean;
  /**
   * Whether a feed with so many changes since its last checkpoint should be checkpointed at once, because a router is
   * about to fetch the journal. Default: never.
   */
  readonly isCheckpointWanted?: (opsSinceCheckpoint: number) => boolean;
  readonly onStop?: () => void;
  readonly limits?: Partial<FeedReaderLimits>;
  readonly logger: Logger;
  readonly meter: Meter;
}

export interface FeedReaderDescription {
  readonly role: FeedRole;
  /** Id of the epoch that is read; null while it is unknown. */
  readonly epoch: string | null;
  /** Latest message that was read. */
  readonly sequence: number | null;
  readonly isComplete: boolean;
  /** Kept to take over. */
  readonly keptRecords: number;
  readonly keptBytes: number;
  /** Blocks of a state from other readers that could not be verified, and removals that it did not explain. */
  readonly inheritedBlocks: number;
  readonly unknownRemovals: number;
}

/** @throws RangeError for limits that are no positive numbers */
export function createFeedReader(options: FeedReaderOptions): FeedReader {
  return new FeedReader(options, checkFeedLimits(options.limits));
}

/**
 * One target's feed on its way from the ledger into the journal. As owner it writes what every message did. As backup
 * it keeps that, to continue where the owner ends.
 */
export class FeedReader {
  /** For the ledger, which reports the changes of the target's blocks to it. */
  readonly sink: LedgerSink;
  readonly #options: FeedReaderOptions;
  readonly #limits: FeedReaderLimits;
  readonly #ops: FactOpsWriter;
  readonly #claim: OwnClaim;
  readonly #writer: FeedWriter;
  readonly #kept: KeptRecords;
  #wanted: FeedRole = "none";
  #run: FeedEpoch;
  /** The last message that was read, or is known to be lost. */
  #readTo: number | undefined;
  #isComplete = false;
  #isWriting = false;
  /** Another router has taken the feed over, and has not given it back. */
  #hasYielded = false;
  /** This reader is changing the fold, which reports its changes meanwhile. */
  #isBusy = false;

  constructor(options: FeedReaderOptions, limits: FeedReaderLimits) {
    const { key: target, journal, stamp, claimsOf, index, slots } = options;
    this.#options = options;
    this.#limits = limits;
    this.#run = new FeedEpoch(undefined, this.#state());
    this.#kept = new KeptRecords(limits);
    this.#claim = new OwnClaim({ target, journal, stamp, claimsOf });
    this.#writer = new FeedWriter(options, limits);
    this.#ops = new FactOpsWriter({
      isUnambiguous: (tier, low, high) =>
        this.#writer.isLevel && index.findByLow(slots.find(target), tier, low) === 1 && index.foundHigh === high,
    });
    this.sink = this.#ops;
  }

  /** Its present role: `owner` while it has a claim and writes. */
  get role(): FeedRole {
    if (this.#wanted === "none") return "none";
    return this.#claim.isPosted ? "owner" : "backup";
  }

  /**
   * A message was applied to the ledger, and the ledger has reported it to the sink.
   *
   * @param isComplete whether every message of the engine's epoch up to this one was read
   */
  batch(mark: BatchMark, isComplete: boolean): void {
    const ops = this.#ops.finish();
    const { newest } = this.#run.marks;
    if (newest && mark.sequence <= newest.sequence) return;
    if (this.#readTo !== undefined && mark.sequence > this.#readTo + 1) this.gap(this.#readTo + 1, mark.sequence - 1);
    this.#run.marks.add(mark);
    this.#readTo = mark.sequence;
    this.#isComplete = isComplete;
    // What the ledger learns without any role is not kept, but must not count as nothing later.
    if (this.#wanted === "none") return;
    this.#take({ kind: "record", ...mark, isComplete, ops });
    if (this.#isWriting && this.#writer.isDistrusted) this.#busy(() => this.#replace());
  }

  /** These messages, both ends included, will not be read any more. Call it before the message behind them. */
  gap(from: number, to: number): void {
    if (this.#run.marks.newest === undefined || to < from) return;
    this.#readTo = Math.max(this.#readTo ?? to, to);
    this.#isComplete = false;
    if (this.#wanted !== "none") this.#take({ kind: "gap", from, to });
  }

  /** The engine is another process, and the ledger is empty. Its messages will show which epoch it is. */
  newEpoch(): void {
    if (this.#wanted !== "owner") this.#claim.withdraw();
    this.#run = new FeedEpoch(this.#run.lastId, this.#state());
    this.#ops.begin();
    this.#pause();
    this.#readTo = undefined;
    this.#isComplete = false;
  }

  /** Sets the feed quality that the claim states. */
  setQuality(quality: FeedQuality, state: string, reason: string, unusable: string | null): void {
    this.#claim.setQuality(quality, state, reason, unusable);
    this.#advance();
  }

  /** Blocks that the ledger did not know were removed by the message that `batch` reports next. */
  unknownRemovals(count: number): void {
    this.#writer.unknownRemovals += count;
  }

  /** What this router should be. An owner remains one until another router's claim and records are there. */
  setRole(role: FeedRole): void {
    this.#wanted = role;
    this.#hasYielded = false;
    if (role === "none") {
      this.#claim.withdraw();
      this.#pause();
    } else if (role === "owner" && this.#claim.rival) this.#claim.post();
    else if (role === "backup" && !this.#isWriting) this.#claim.withdraw();
    this.#advance();
  }

  /** The target's newest epoch or progress has changed in the fold. */
  foldChanged(): void {
    this.#writer.isLevel = false;
    // This reader alone says what the engine runs. Until it has seen that itself, it does not vouch for the facts.
    if (this.#isWriting && !this.#isBusy && !this.#run.isCurrent(this.#state())) this.#isWriting = false;
    this.#advance();
  }

  claimSeen(origin: Origin, claim: FeedClaim): void {
    this.#claim.seen(origin, claim);
  }

  /** Another router's journal says this of the target, in this epoch. Call it after the fold. */
  factsSeen(origin: Origin, epoch: EngineEpoch, entries: readonly FactEntry[]): void {
    if (entries.some(({ kind }) => kind !== "gap")) this.#claim.written(origin);
    if (this.#isWriting) return;
    for (const entry of entries) if (entry.kind === "checkpoint") this.#writer.feeds.settle(epoch, entry.sequence);
  }

  /** Call it before each commit, and at least every second. */
  maintain(): void {
    if (this.#wanted === "none") return;
    const state = this.#state();
    if (!this.#isWriting || !state || !this.#run.isCurrent(state)) {
      this.#isWriting = false;
      this.#advance();
      return;
    }
    this.#busy(() => {
      const isLacking = state.progress === "loading" || !state.isComplete;
      if (isLacking && this.#isComplete && this.#replace()) return;
      this.#writer.maintain(state);
    });
  }

  stop(): void {
    this.setRole("none");
    this.#options.onStop?.();
  }

  /** Plain JSON for operators. */
  describe(): FeedReaderDescription {
    return {
      role: this.role,
      ...this.#run.describe(),
      isComplete: this.#isComplete,
      keptRecords: this.#kept.count,
      keptBytes: this.#kept.byteLength,
      ...this.#writer.describe(),
    };
  }

  #state(): FoldState | undefined {
    return this.#options.fold.state(this.#options.key);
  }

  /** Runs work that changes the fold, unless such work is running already. */
  #busy(work: () => void): void {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      work();
    } finally {
      this.#isBusy = false;
    }
  }

  #pause(): void {
    this.#kept.clear();
    this.#writer.begin(0);
    this.#isWriting = false;
  }

  #take(entry: KeptEntry): void {
    const state = this.#isWriting ? this.#state() : undefined;
    if (!this.#isWriting || !state || !this.#run.isCurrent(state)) {
      this.#isWriting = false;
      this.#kept.push(entry);
      if (entry.kind === "record") this.#advance();
      return;
    }
    const isKnown = lastMessageOf(entry) <= lastSequenceOf(state) && (!this.#isComplete || state.isComplete);
    const { rival } = this.#claim;
    if (rival && (rival.hasWritten || isKnown)) {
      this.#kept.push(entry);
      this.#yield();
      return;
    }
    this.#busy(() => {
      if (!isKnown) this.#writer.feeds.write(this.#run.current!, [entry]);
      this.#kept.restartAfter(lastMessageOf(entry));
      this.#writer.look(this.#run.marks.newest);
    });
  }

  #yield(): void {
    this.#options.logger.info("feed taken over by another router", { target: this.#options.key });
    this.#writer.meters.yielded();
    this.#claim.withdraw();
    this.#hasYielded = true;
    this.#isWriting = false;
    this.#writer.begin(0);
  }

  /** Looks where the fold is, and takes over where this router should or can do better. */
  #advance(): void {
    if (this.#wanted === "none" || this.#isWriting || this.#isBusy) return;
    this.#busy(() => {
      const state = this.#state();
      const isKnown = this.#run.adopt(state, this.#options.clock.nowMs());
      if (isKnown && state) this.#follow(state);
      if (this.#claim.rival?.hasWritten) this.#yield();
      // The router that had taken it over has given it back.
      if (this.#hasYielded && !this.#claim.hasOthers()) this.#hasYielded = false;
      if (this.#wanted !== "owner" || this.#hasYielded) {
        if (isKnown && state && this.#knowsBetter(state)) this.#takeOver(state);
        return;
      }
      const hasRead = this.#run.marks.newest !== undefined;
      // The first message may name an epoch that is over; then a later message names the run.
      if (!hasRead) this.#claimUnread();
      else if (isKnown || this.#nameEpoch() || this.#nameEpoch()) this.#takeOver(this.#state());
      this.#claim.setUnverified(hasRead && !this.#run.isCurrent(this.#state()));
    });
  }

  #follow(state: FoldState): void {
    this.#run.follow(state);
    this.#kept.dropTo(this.#isComplete ? this.#run.completeTo : lastSequenceOf(state));
    this.#writer.feeds.retireOthers(this.#run.current!);
  }

  #knowsBetter(state: FoldState): boolean {
    return this.#isComplete && !state.isComplete && this.#run.reaches(state);
  }

  /** An engine with an empty history holds nothing: what others have read was of an earlier process. */
  #claimUnread(): void {
    const epoch = this.#claim.isOfNothing ? this.#run.nameUnread(this.#state()) : undefined;
    if (epoch) {
      this.#writer.feeds.declare(epoch);
      this.#writer.feeds.retireOthers(epoch);
      // The engine's first message is later than this epoch, whatever its clock says.
      this.#run = new FeedEpoch(epochId(epoch), this.#state());
    }
    this.#claim.postUnread();
  }

  /** Declares what is read as a new epoch. Returns whether the fold takes it for the newest. */
  #nameEpoch(): boolean {
    const { clock, key, logger } = this.#options;
    const moment = { nowMs: clock.nowMs(), waitMs: this.#limits.epochWaitMs, isLive: this.#claim.isUsable };
    const epoch = this.#run.name(this.#state(), moment);
    if (!epoch) return false;
    this.#writer.feeds.declare(epoch);
    if (!this.#run.beginNamed(epoch, this.#state())) return false;
    this.#writer.meters.epochNamed();
    this.#writer.feeds.retireOthers(epoch);
    logger.info("new epoch of an engine", { target: key, epoch: epochId(epoch), after: epoch.predecessor });
    return true;
  }

  #takeOver(state: FoldState | undefined): void {
    const { earliest, newest } = this.#run.marks;
    if (!state || !earliest || !newest) return;
    const { adoptedMs, completeTo } = this.#run;
    const isAwaited = adoptedMs !== undefined && this.#options.clock.nowMs() - adoptedMs < this.#limits.factsWaitMs;
    const facts = { state, earliest, newest, isComplete: this.#isComplete, keptFrom: this.#kept.start };
    const plan = planTakeover({ ...facts, completeTo, isAwaited });
    if (plan.how === "wait") return;
    if (plan.how === "state") {
      if (!this.#replace()) return;
    } else {
      const entries = this.#kept.since(plan.from);
      if (plan.gapFrom !== undefined) entries.unshift({ kind: "gap", from: plan.gapFrom, to: plan.from - 1 });
      const isInherited = !this.#isComplete && state.last !== undefined;
      this.#writer.begin(isInherited ? this.#writer.countBlocks() : 0);
      this.#writer.feeds.write(this.#run.current!, entries);
      // Records cannot complete a state that an earlier reader has stated.
      if (this.#isComplete && !this.#state()?.isComplete) this.#replace();
    }
    this.#isWriting = true;
    this.#kept.restartAfter(newest.sequence);
    this.#writer.look(newest);
    this.#writer.meters.takenOver(plan.how);
    if (this.#claim.isPosted) return;
    this.#claim.post();
    this.#options.logger.info("reading a feed for the mesh", { target: this.#options.key, how: plan.how });
  }

  /** Makes the state what the ledger holds, unless the ledger is at an earlier message. */
  #replace(): boolean {
    const { fold, key: target, tellAll } = this.#options;
    const mark = this.#run.marks.newest;
    const epoch = this.#run.current;
    const before = this.#state();
    if (!mark || !epoch || (before && mark.sequence < lastSequenceOf(before))) return false;
    this.#writer.feeds.declare(epoch);
    if (!fold.replaceState({ target, epoch, mark, isComplete: this.#isComplete, tellAll })) return false;
    this.#writer.begin(0);
    const state = this.#state();
    if (state) this.#writer.checkpoint(state);
    return true;
  }
}
