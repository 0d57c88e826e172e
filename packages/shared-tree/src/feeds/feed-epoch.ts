import {
  type BatchMark,
  type EngineEpoch,
  epochId,
  isUnread,
  markOf,
  unreadEpochAfter,
} from "../facts/engine-epoch.ts";
import type { FoldState } from "../facts/fact-fold.ts";
import { lastSequenceOf } from "./takeover.ts";

/** Messages whose marks are remembered, to tell epochs apart. */
export const maxKnownMarks = 4_096;

/** The marks of the latest messages of one run of an engine, by their numbers, which ascend. */
export class MarkHistory {
  /** The first message of all, which is never forgotten. */
  earliest: BatchMark | undefined;
  newest: BatchMark | undefined;
  readonly #sequences = new Float64Array(maxKnownMarks).fill(-1);
  readonly #timestamps = new Float64Array(maxKnownMarks);
  readonly #checksums = new Uint32Array(maxKnownMarks);

  add(mark: BatchMark): void {
    const { sequence, timestampUs, checksum } = mark;
    const at = sequence % maxKnownMarks;
    this.#sequences[at] = sequence;
    this.#timestamps[at] = timestampUs;
    this.#checksums[at] = checksum;
    this.newest = markOf(mark);
    this.earliest ??= this.newest;
  }

  /** Whether the remembered message with this number is this one. */
  compare(mark: BatchMark): "equal" | "different" | "not-known" {
    const { earliest } = this;
    if (earliest?.sequence === mark.sequence) return isSameMessage(earliest, mark) ? "equal" : "different";
    const at = mark.sequence % maxKnownMarks;
    if (this.#sequences[at] !== mark.sequence) return "not-known";
    const isEqual = this.#timestamps[at] === mark.timestampUs && this.#checksums[at] === mark.checksum;
    return isEqual ? "equal" : "different";
  }
}

/** Whether two marks are of the same message of the same epoch. */
export function isSameMessage(one: BatchMark, other: BatchMark): boolean {
  if (one === other) return true;
  const isSame = one.sequence === other.sequence && one.checksum === other.checksum;
  return isSame && one.timestampUs === other.timestampUs;
}

interface NamingMoment {
  readonly nowMs: number;
  readonly waitMs: number;
  readonly isLive: boolean;
}

/** One run of an engine as this router reads it, and which of the epochs that routers know it is. */
export class FeedEpoch {
  readonly marks = new MarkHistory();
  /** The fold had everything of the present epoch up to this message. */
  completeTo = -1;
  /** When this router found out that another one had named the run; undefined while it has not, or named it itself. */
  adoptedMs: number | undefined;
  #current: EngineEpoch | undefined;
  readonly #ended: string | undefined;
  /** The known epoch when the run began, and its latest message then. */
  readonly #before: { readonly id: string; readonly last: number } | undefined;
  #undecidedSinceMs: number | undefined;
  /** Whether the earliest message names an epoch that another epoch has already followed. */
  #isEarliestTaken = false;

  /**
   * @param ended id of the epoch that this router read before; the run is not that epoch, unless a message shows it
   * @param known what routers know before this one has read anything of the run
   */
  constructor(ended: string | undefined, known: FoldState | undefined) {
    this.#ended = ended;
    this.#before = known?.epoch && { id: epochId(known.epoch), last: lastSequenceOf(known) };
  }

  /** Undefined while it is unknown. */
  get current(): EngineEpoch | undefined {
    return this.#current;
  }

  /** Id of the latest epoch that this router has read. */
  get lastId(): string | undefined {
    return this.#current ? epochId(this.#current) : this.#ended;
  }

  isCurrent(state: FoldState | undefined): boolean {
    return state?.epoch !== undefined && this.#current !== undefined && isSameMessage(this.#current, state.epoch);
  }

  /** Whether the run is the newest epoch that routers know. Adopts that epoch when a message shows it. */
  adopt(state: FoldState | undefined, nowMs: number): boolean {
    if (!state?.epoch) return false;
    if (this.isCurrent(state)) return true;
    if (compareEpoch(this.marks, { epoch: state.epoch, last: state.last }) !== "same") return false;
    this.begin(state.epoch);
    this.adoptedMs = nowMs;
    return true;
  }

  /** The run is this epoch. */
  begin(epoch: EngineEpoch): void {
    this.#current = epoch;
    this.#undecidedSinceMs = undefined;
    this.adoptedMs = undefined;
    this.completeTo = epoch.sequence - 1;
  }

  /** Whether the reader has read everything that a state covers. */
  reaches(state: FoldState): boolean {
    const { newest } = this.marks;
    return newest !== undefined && newest.sequence >= lastSequenceOf(state);
  }

  /** Notes how far the fold of the present epoch is complete. */
  follow(state: FoldState): void {
    if (state.isComplete && state.progress !== "loading")
      this.completeTo = Math.max(this.completeTo, lastSequenceOf(state));
  }

  /**
   * What to call the run as a new epoch.
   *
   * @param at.waitMs how long to wait while it is unknown whether the run is a new epoch
   * @param at.isLive whether the reader has read everything that the engine has published
   * @returns undefined when that is not certain, or nothing was read yet
   */
  name(state: FoldState | undefined, { nowMs, waitMs, isLive }: NamingMoment): EngineEpoch | undefined {
    const { earliest, newest } = this.marks;
    if (!earliest || !newest) return undefined;
    if (!state?.epoch) return { ...earliest, predecessor: this.#ended ?? null };
    const predecessor = epochId(state.epoch);
    const knownTo = this.#before?.id === predecessor ? this.#before.last : undefined;
    const known = { epoch: state.epoch, last: state.last, knownTo, isLive };
    const verdict = predecessor === this.#ended ? "later" : compareEpoch(this.marks, known);
    // While the reader has more to read, the run may still be what others have read already.
    if (verdict === "older" && !isLive) this.#undecidedSinceMs = nowMs;
    if (verdict === "older" || verdict === "unknown") {
      this.#undecidedSinceMs ??= nowMs;
      if (nowMs - this.#undecidedSinceMs < waitMs) return undefined;
    }
    // A name that was used already would name an epoch before the one that has followed since.
    const given = [predecessor, state.epoch.predecessor];
    const isTaken = this.#isEarliestTaken || this.#current !== undefined || given.includes(epochId(earliest));
    const isOlder = isBefore(earliest, state.last ?? state.epoch);
    return { ...(isTaken || isOlder ? newest : earliest), predecessor };
  }

  /** What to call the run while the engine has published nothing; undefined when the run may be the known epoch. */
  nameUnread(state: FoldState | undefined): EngineEpoch | undefined {
    if (this.marks.newest !== undefined || !state?.epoch) return undefined;
    if (isUnread(state.epoch) && state.last === undefined) return undefined;
    return unreadEpochAfter(state.epoch);
  }

  /**
   * Begins the epoch that the run was named, if it is the newest. If not, another one has followed that name already.
   */
  beginNamed(name: EngineEpoch, state: FoldState | undefined): boolean {
    const isNewest = state?.epoch !== undefined && epochId(state.epoch) === epochId(name);
    if (isNewest) this.begin(state.epoch);
    else this.#isEarliestTaken = true;
    return isNewest;
  }

  describe() {
    return { epoch: this.#current ? epochId(this.#current) : null, sequence: this.marks.newest?.sequence ?? null };
  }
}

/** A message with a lower number is of a later epoch when it was made so much later: clock corrections are smaller. */
const clockMarginUs = 1_000_000;

/** What the fold knows of a target's newest epoch. */
export interface KnownEpochMarks {
  readonly epoch: EngineEpoch;
  readonly last: BatchMark | undefined;
  /**
   * The epoch's latest message that was known before this router connected to the engine; undefined when the epoch was
   * unknown then. An engine that accepts a connection is not older than the epochs that were known before.
   */
  readonly knownTo?: number | undefined;
  /** Whether the reader is at the end of what the engine has published. */
  readonly isLive?: boolean;
}

/**
 * Whether the run that is read is the epoch that others know. `later`: it is another epoch, which began after that one.
 * `older`: what was read so far is older than what others know, by the engine's clock, which may have been set back.
 * `unknown`: the messages do not show it yet.
 */
export function compareEpoch(
  marks: MarkHistory,
  { epoch, last, knownTo, isLive = false }: KnownEpochMarks,
): "same" | "later" | "older" | "unknown" {
  const { earliest, newest } = marks;
  if (!earliest || !newest) return "unknown";
  const latest = last ?? epoch;
  const verdicts = [marks.compare(latest), marks.compare(epoch)];
  if (verdicts.includes("equal")) return "same";
  if (knownTo === undefined && isBefore(newest, latest)) return "older";
  if (verdicts.includes("different")) return "later";
  // The engine does not repeat what others had read, so this cannot be shown to be the same epoch.
  if (latest.sequence < earliest.sequence) return "later";
  // At the end of its history the engine lacks a message that was known before this router connected to it.
  if (knownTo !== undefined && isLive && newest.sequence < knownTo) return "later";
  const isRenumbered = [latest, epoch].some(
    (known) => newest.sequence < known.sequence && isBefore(known, newest, clockMarginUs),
  );
  return isRenumbered ? "later" : "unknown";
}

/** Whether by the engine's clock one message is older than the other. */
function isBefore(one: BatchMark, other: BatchMark, marginUs = 0): boolean {
  if (one.timestampUs < 0 || other.timestampUs < 0) return false;
  return one.timestampUs + marginUs < other.timestampUs;
}
