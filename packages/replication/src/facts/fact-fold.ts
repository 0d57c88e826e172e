import type { Cancel } from "@espalier/common";
import type { LedgerSink } from "@espalier/prefix-index";
import type { DeclarationOf, FeedDeclaration } from "../documents/journal.ts";
import type { Origin } from "../origin.ts";
import type { FactEntry } from "./fact-item.ts";
import type { BatchMark, Life } from "./life.ts";

/** How far a target's facts are folded. */
export interface FoldState {
  readonly target: string;
  /** Newest life that is known; undefined before any. */
  readonly life: Life | undefined;
  /** The latest message that is applied; undefined while none is. */
  readonly last: BatchMark | undefined;
  /** Whether every message of the life up to `last` is in it. */
  readonly isComplete: boolean;
  /**
   * `current`: all that is known is applied. `waiting`: later messages are there, earlier ones are not. `open`: went on
   * over a gap that may still be filled. `loading`: waits for a snapshot.
   */
  readonly progress: "current" | "waiting" | "open" | "loading";
}

/** A statement about a settled target that another replica can compare with its own. */
export interface FoldStatement {
  readonly target: string;
  readonly life: string;
  readonly sequence: number;
  readonly isComplete: boolean;
  readonly blocks: number;
  readonly digest: readonly [number, number];
}

/** Why the state of targets must be fetched from another replica. */
export type ReloadReason = "behind-cut" | "digest-mismatch" | "overflow" | "unknown-base";

/** A target's whole state, by the ledger of this router's own reader of its feed. */
export interface FoldReplacement {
  readonly target: string;
  /** Declared in the own journal, and to the fold. */
  readonly life: Life;
  /** The latest message that is in the state. */
  readonly mark: BatchMark;
  /** Whether the reader has read every message of the life up to the mark. */
  readonly isComplete: boolean;
  /** Tells everything that the target holds, parents before children, onto nothing. */
  readonly tellAll: (sink: LedgerSink) => void;
}

/**
 * Keeps the facts of a prefix index equal to what journals say: for each target the fold, in the order of the engine's
 * sequence numbers, of the set of its newest life's records, whoever wrote them and in whatever order they come.
 */
export interface FactFold {
  state(target: string): FoldState | undefined;
  states(): Iterable<FoldState>;
  /** Ids of lives that are dated later than this one and do not follow it: it must name them to be the newest. */
  outranking(target: string, life: BatchMark): readonly string[];
  /** A statement when the target is settled, that is `current`. */
  statement(target: string): FoldStatement | undefined;
  /**
   * What a checkpoint of the target would state now: as `statement`, and also while the fold is `open`, so that whoever is
   * responsible for the target can close a gap that nobody fills.
   */
  checkpointStatement(target: string): FoldStatement | undefined;
  /** Compares what another replica states; a difference at the same life and sequence reloads the target. */
  compare(statement: FoldStatement, from: Origin): "equal" | "different" | "not-comparable";
  /** A journal speaks of a life. */
  declare(declaration: FeedDeclaration): void;
  /** In the order of the origin's journal. The own entries go the same way, before they are committed. */
  apply(origin: Origin, entries: readonly FactEntry[], declarationOf: DeclarationOf): void;
  /**
   * Makes a target's state what this router's own reader knows, at its mark, when records do not lead there: what was
   * folded is voided, everything is told anew, kept records up to the mark are dropped, those after it are applied. A
   * snapshot that is under way for the target is not waited for any more. It is `current` then, so that the reader can
   * state a checkpoint of it, which is written to the journal and given to `apply` like every own entry.
   *
   * @returns false when the life is not the newest one known, in which case nothing changes
   */
  replaceState(replacement: FoldReplacement): boolean;
  /** Voids everything of a target: the engine is gone for good. What comes for it counts when it is declared again. */
  forgetTarget(target: string): void;
  /**
   * State of all targets, or of some, as frames of at most `maxBytes` for `beginImport` of another replica. The state may
   * change between two frames: together with the records after the stamps that the first frame holds they give the state.
   */
  exportFrames(maxBytes: number, targets?: readonly string[]): Generator<Uint8Array, void, undefined>;
  /** Takes one snapshot; frames in their order. */
  beginImport(): FoldImport;
  /** Nobody can give a snapshot: the targets go on with what they have, as partial. */
  giveUpLoading(targets: readonly string[]): void;
  /** Asks for the state of targets that have waited too long for what is missing. Called about once a second. */
  maintain(): void;
  /** Told when the newest life or the progress of a target changes, or whether it is complete, and when it is forgotten. */
  onChange(listener: (target: string) => void): Cancel;
  /** Bytes of what waits and of kept states, the index not included. */
  readonly byteLength: number;
}

export interface FoldImport {
  /** @throws RangeError for bytes that are no frame; the import is aborted then */
  frame(bytes: Uint8Array): void;
  /** All frames came. @returns targets that have their state now */
  end(): readonly string[];
  /** The targets that it would have brought wait on. */
  abort(): void;
}
