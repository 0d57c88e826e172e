/** Engines that a request may break before it counts as what breaks them. */
const maxBroken = 2;

/**
 * How often one client's request was sent, where that matters: it may be the request that broke the engine, so what
 * is sent again is a copy of that risk. All that is sent for it shares these.
 */
export class RequestCopies {
  #broken = 0;
  #isRedialled = false;

  /** A connection ended with the request on it. */
  broke(): void {
    this.#broken += 1;
  }

  /** Whether it is to go to no engine any more. */
  get isDangerous(): boolean {
    return this.#broken >= maxBroken;
  }

  /** Whether it may have been read by an engine, so that a further copy should not be lost to a stale connection. */
  get isResent(): boolean {
    return this.#isRedialled || this.#broken > 0;
  }

  /** Takes the one resend at no charge: on a new connection, in place of a kept one that had gone stale. @returns whether it was left */
  redial(): boolean {
    if (this.#isRedialled) return false;
    this.#isRedialled = true;
    return true;
  }
}
