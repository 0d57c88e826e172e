import type { FactDigest } from "./samples.ts";

/** Compares what routers know of targets' caches after the same events, regardless of when each was asked. */
export interface DigestCheck {
  /** Facts that two routers reported at the same point. */
  readonly compared: number;
  /** One sentence per mismatch. */
  readonly mismatches: readonly string[];
  add(router: string, facts: readonly FactDigest[]): void;
}

/** Points remembered per target. Samples of all routers are taken together, so few are enough. */
const keptPoints = 16;

export function createDigestCheck(): DigestCheck {
  const known = new Map<string, Map<string, { readonly router: string; readonly digest: string }>>();
  const mismatches: string[] = [];
  let compared = 0;
  return {
    get compared() {
      return compared;
    },
    mismatches,
    add(router, facts) {
      const listed = new Set(facts.map(({ target }) => target));
      for (const target of known.keys()) if (!listed.has(target)) known.delete(target);
      for (const { target, point, digest } of facts) {
        const points = known.get(target) ?? new Map<string, { router: string; digest: string }>();
        known.set(target, points);
        const before = points.get(point);
        if (before && before.router !== router) {
          compared += 1;
          if (before.digest !== digest)
            mismatches.push(`${target} at ${point}: ${before.router} has ${before.digest}, ${router} has ${digest}`);
        }
        if (!before) points.set(point, { router, digest });
        for (const [oldest] of points) {
          if (points.size <= keptPoints) break;
          points.delete(oldest);
        }
      }
    },
  };
}
