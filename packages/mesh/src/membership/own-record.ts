import type { RouterId } from "@espalier/common";
import type { Origin } from "@espalier/replication";
import { isWithinReach, type MemberRecord } from "./member-record.ts";
import { fitUnreachable, frameBounds } from "./membership-frames.ts";

/** What this router says of itself. */
export class OwnRecord {
  readonly #self: () => Origin;
  readonly #address: () => string | undefined;
  #incarnation = 0;
  #hasLeft = false;
  #isDraining = false;
  #unreachable: readonly string[] = [];

  constructor(self: () => Origin, address: () => string | undefined) {
    this.#self = self;
    this.#address = address;
  }

  get incarnation(): number {
    return this.#incarnation;
  }

  get hasLeft(): boolean {
    return this.#hasLeft;
  }

  leave(): void {
    this.#hasLeft = true;
  }

  /** @returns whether that is news */
  setDraining(isDraining: boolean): boolean {
    if (this.#isDraining === isDraining) return false;
    this.#isDraining = isDraining;
    return true;
  }

  /** Takes as many as a record holds. @returns whether that is news */
  setUnreachable(targets: readonly string[]): boolean {
    const fitting = fitUnreachable(targets);
    const before = this.#unreachable;
    if (fitting.length === before.length && fitting.every((target, index) => target === before[index])) return false;
    this.#unreachable = fitting;
    return true;
  }

  /**
   * Others hold something of this router that its next incarnation, later than this one, has to answer.
   *
   * @returns false when there is nothing to answer: it has been, or nobody takes what is so far ahead
   */
  answer(incarnation: number): boolean {
    if (incarnation < this.#incarnation || !isWithinReach(this.#incarnation, incarnation)) return false;
    this.#incarnation = incarnation;
    return true;
  }

  /** The record anew, under a higher incarnation. */
  next(links: Iterable<RouterId>): MemberRecord {
    this.#incarnation += 1;
    return {
      origin: this.#self(),
      incarnation: this.#incarnation,
      hasLeft: this.#hasLeft,
      isDraining: this.#isDraining,
      address: this.#address() ?? "",
      unreachable: this.#unreachable,
      links: [...links].sort().slice(0, frameBounds.links),
    };
  }
}
