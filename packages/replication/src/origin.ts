import type { RouterId } from "@espalier/common";

/** One epoch of a router. It distinguishes what the router writes now from what it wrote before a restart. */
export interface Origin {
  readonly router: RouterId;
  /** Milliseconds since the Unix epoch at its start, or more where a peer knew a later epoch: it only rises. */
  readonly epoch: number;
}

/** An origin as a text, for maps and logs. */
export function originKey({ router, epoch }: Origin): string {
  return `${router}@${epoch}`;
}
