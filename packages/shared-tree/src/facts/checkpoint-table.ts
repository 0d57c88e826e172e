import type { RouterId } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import type { CheckpointEntry } from "./fact-item.ts";

/** Checkpoints of one target beyond what is folded. Beyond the bound the highest are kept. */
export const maxWaitingCheckpoints = 16;

/** A checkpoint, and who states it. */
export interface StatedCheckpoint {
  readonly checkpoint: CheckpointEntry;
  readonly origin: Origin;
}

/** Complete checkpoints rank first, then those of the lowest router; of one router the later one. */
function outranks(one: StatedCheckpoint, other: StatedCheckpoint): boolean {
  if (one.checkpoint.isComplete !== other.checkpoint.isComplete) return one.checkpoint.isComplete;
  return one.origin.router < other.origin.router;
}

/** Checkpoints beyond a target's position, by sequence, the best one for each. */
export class CheckpointTable {
  #checkpoints: StatedCheckpoint[] = [];

  get count(): number {
    return this.#checkpoints.length;
  }

  get highest(): StatedCheckpoint | undefined {
    return this.#checkpoints.at(-1);
  }

  add(stated: StatedCheckpoint): void {
    const { sequence } = stated.checkpoint;
    const at = this.#checkpoints.findIndex(({ checkpoint }) => checkpoint.sequence >= sequence);
    const known = at < 0 ? undefined : this.#checkpoints[at];
    if (known?.checkpoint.sequence === sequence) {
      if (!outranks(known, stated)) this.#checkpoints[at] = stated;
    } else {
      this.#checkpoints.splice(at < 0 ? this.#checkpoints.length : at, 0, stated);
      if (this.#checkpoints.length > maxWaitingCheckpoints) this.#checkpoints.shift();
    }
  }

  /** Takes the checkpoint at this sequence. */
  take(sequence: number): StatedCheckpoint | undefined {
    const at = this.#checkpoints.findIndex(({ checkpoint }) => checkpoint.sequence === sequence);
    return at < 0 ? undefined : this.#checkpoints.splice(at, 1)[0];
  }

  /** Whether there is a checkpoint from `from` to `to`, inclusive. */
  hasWithin(from: number, to: number): boolean {
    return this.#checkpoints.some(({ checkpoint }) => from <= checkpoint.sequence && checkpoint.sequence <= to);
  }

  dropThrough(sequence: number): void {
    if (this.#checkpoints.length > 0)
      this.#checkpoints = this.#checkpoints.filter(({ checkpoint }) => checkpoint.sequence > sequence);
  }

  clear(): void {
    this.#checkpoints = [];
  }
}

/**
 * `settles`: the state equals the checkpoint. `outranked`: the state is the better of the two. `replaces`: the
 * checkpoint is.
 */
export type CheckpointVerdict = "settles" | "outranked" | "replaces";

/** Compares checkpoints of a target with its state, and with earlier checkpoints. */
export class CheckpointValidator {
  readonly #self: RouterId;
  /** The best of the latest checkpoints that agreed with the state. */
  #settledBy: StatedCheckpoint | undefined;
  /** Sequence of the latest outranked checkpoint since one agreed; -1 for none. */
  #outrankedAt = -1;

  constructor(self: RouterId) {
    this.#self = self;
  }

  /** Begins to validate another state. */
  reset(): void {
    this.#settledBy = undefined;
    this.#outrankedAt = -1;
  }

  /** @param state as it is at the sequence of the checkpoint */
  validate(
    stated: StatedCheckpoint,
    state: { readonly agrees: boolean; readonly isComplete: boolean },
  ): CheckpointVerdict {
    const { checkpoint, origin } = stated;
    const settled = this.#settledBy?.checkpoint.sequence === checkpoint.sequence ? this.#settledBy : undefined;
    if (state.agrees) {
      if (!settled || !outranks(settled, stated)) this.#settledBy = stated;
      this.#outrankedAt = -1;
      return "settles";
    }
    if (origin.router === this.#self) return "outranked";
    const isOutranked =
      (state.isComplete && !checkpoint.isComplete) || (settled !== undefined && outranks(settled, stated));
    // A writer that does not change its mind would differ forever, so its second checkpoint counts.
    const isRepeated = this.#outrankedAt >= 0 && checkpoint.sequence > this.#outrankedAt;
    if (!isOutranked || isRepeated) return "replaces";
    this.#outrankedAt = checkpoint.sequence;
    return "outranked";
  }
}
