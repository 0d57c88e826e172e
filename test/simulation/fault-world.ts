import type { Random, Scheduler } from "@espalier/core";
import type { FleetControls } from "@espalier/simulator";
import type { RunCounts } from "./run-counts.ts";

/** What a kind of fault has to work with. */
export interface FaultWorld {
  readonly fleet: FleetControls;
  readonly scheduler: Scheduler;
  /** Of this kind alone, so that what it does is the same whichever others are on. */
  readonly random: Random;
  /** Mean time between two faults of this kind. */
  readonly paceMs: number;
  readonly cuts: CountedCuts;
  readonly counts: RunCounts;
  /** Routers that have never run. */
  readonly spares: number[];
  /** Routers that were replaced by others for good. */
  readonly replaced: Set<number>;
  readonly paused: Set<number>;
  /** Everything was healed: nothing goes wrong any more. */
  isOver: boolean;
  /** Writes down what was done. */
  note(one?: number, other?: number): void;
}

/** Directions between routers that several faults may have cut at once. */
export class CountedCuts {
  readonly #fleet: FleetControls;
  readonly #counts = new Map<number, number>();

  constructor(fleet: FleetControls) {
    this.#fleet = fleet;
  }

  /** @returns undoes it, once */
  cut(from: number, to: number): () => void {
    if (from === to) return () => {};
    const key = from * this.#fleet.routerCount + to;
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    this.#fleet.cutLink(from, to);
    let isCheckpoint = true;
    return () => {
      if (!isCheckpoint) return;
      isCheckpoint = false;
      const left = (this.#counts.get(key) ?? 1) - 1;
      this.#counts.set(key, left);
      if (left === 0) this.#fleet.mendLink(from, to);
    };
  }

  /** Cuts both directions between members of different groups. @returns undoes it */
  separate(one: readonly number[], other: readonly number[]): () => void {
    const mends = one.flatMap((here) => other.flatMap((there) => [this.cut(here, there), this.cut(there, here)]));
    return () => {
      for (const mend of mends) mend();
    };
  }
}
