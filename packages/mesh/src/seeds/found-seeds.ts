import type { Cancel } from "@espalier/common";

/** Seeds that somebody else finds and keeps up to date. */
export interface FoundSeeds {
  /** `host:port` each; a name may stand for many addresses. */
  seeds(): readonly string[];
  /** Whether whoever looks for them has found some, or has failed to, at least once. */
  readonly isTried: boolean;
  /** Told when there are others, and when they have been tried. */
  onChange(listener: () => void): Cancel;
}
