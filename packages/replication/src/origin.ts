import type { RouterId } from "@espalier/common";

/** One epoch of a router: what it has written is told apart from what it wrote before it was restarted. */
export interface Origin {
  readonly router: RouterId;
  /** Milliseconds since the Unix epoch at its start, or more where a peer knew a later epoch: it only rises. */
  readonly epoch: number;
}

/** An origin as a text, for maps and logs. */
export function originKey({ router, epoch }: Origin): string {
  return `${router}@${epoch}`;
}
