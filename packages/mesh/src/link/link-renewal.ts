import type { Cancel, Scheduler } from "@espalier/common";
import type { Link } from "./link.ts";

/** From the end of one link to that of the next: by then the first has been dialed anew. */
const renewalPeriodMs = 1_000;

export interface LinkRenewalDeps {
  readonly scheduler: Scheduler;
  links(): readonly Link[];
  /** Whether a secret still counts. */
  counts(secret: string): boolean;
}

/**
 * Ends the links of those who have proved a secret that does not count any more: one a second, so that a router whose
 * links were all made with the old secret of its cluster stays linked while they are made with the new one.
 */
export class LinkRenewal {
  readonly #deps: LinkRenewalDeps;
  readonly #proved = new WeakMap<Link, string>();
  #cancel: Cancel | undefined;

  constructor(deps: LinkRenewalDeps) {
    this.#deps = deps;
  }

  /** A link was made with whoever knows this secret. */
  made(link: Link, secret: string): void {
    this.#proved.set(link, secret);
  }

  /** The secrets have changed. */
  begin(): void {
    if (!this.#cancel) this.#endNext();
  }

  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  #endNext(): void {
    this.#cancel = undefined;
    const outdated = this.#deps.links().find((link) => !this.#deps.counts(this.#proved.get(link) ?? ""));
    if (!outdated) return;
    this.#cancel = this.#deps.scheduler.after(renewalPeriodMs, () => this.#endNext());
    outdated.close("replaced");
  }
}
