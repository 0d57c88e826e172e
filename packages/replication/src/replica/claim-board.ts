import { type FeedClaim, holdsAgainst, type PostedClaim } from "../feeds/feed-claim.ts";
import { type Origin, originKey } from "../origin.ts";

/** The claims of all journals, by target. */
export class ClaimBoard {
  readonly #byTarget = new Map<string, Map<string, PostedClaim>>();

  set(origin: Origin, target: string, claim: FeedClaim | undefined): void {
    const key = originKey(origin);
    const claims = this.#byTarget.get(target);
    if (claim === undefined) {
      claims?.delete(key);
      if (claims?.size === 0) this.#byTarget.delete(target);
    } else if (claims) claims.set(key, { origin, claim });
    else this.#byTarget.set(target, new Map([[key, { origin, claim }]]));
  }

  /** @returns the targets whose claims changed */
  dropOrigin(origin: Origin): readonly string[] {
    const key = originKey(origin);
    const dropped = [...this.#byTarget].flatMap(([target, claims]) => (claims.has(key) ? [target] : []));
    for (const target of dropped) this.set(origin, target, undefined);
    return dropped;
  }

  of(target: string): readonly PostedClaim[] {
    const claims = this.#byTarget.get(target);
    return claims ? [...claims.values()] : [];
  }

  /** The claim that holds among those for which `counts`: the latest, of equal ones that of the lower router id. */
  holder(target: string, counts: (origin: Origin) => boolean): PostedClaim | undefined {
    let best: PostedClaim | undefined;
    for (const posted of this.#byTarget.get(target)?.values() ?? []) {
      if (counts(posted.origin) && (best === undefined || !holdsAgainst(best, posted))) best = posted;
    }
    return best;
  }

  targets(): Iterable<string> {
    return this.#byTarget.keys();
  }
}
