import { type Codec, name, type RouterId, struct, varint } from "@espalier/core";

/** One epoch of a router. It distinguishes what the router writes now from what it wrote before a restart. */
export interface Origin {
  readonly router: RouterId;
  /** Milliseconds since the Unix epoch at its start, or more where a peer knew a later epoch: it only rises. */
  readonly epoch: number;
}

/** The year 10889 in milliseconds since the Unix epoch: no router's epoch is as high, and a frame with a later one is refused. */
export const maxEpoch = 2 ** 48;

/** An origin in a frame. @param maxRouterBytes of its router's id */
export function originOf(maxRouterBytes: number): Codec<Origin> {
  return struct({ router: name<RouterId>(maxRouterBytes), epoch: varint(maxEpoch) });
}

/** UTF-8 bytes of a router's id in frames of rows. */
const maxRouterBytes = 255;
export const frameOrigin = originOf(maxRouterBytes);

/** An origin as a text, for maps and logs. */
export function originKey({ router, epoch }: Origin): string {
  return `${router}@${epoch}`;
}
