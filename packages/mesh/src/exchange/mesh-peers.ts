import type { RouterId } from "@espalier/common";
import type { Origin } from "@espalier/replication";

/** What the exchange asks of membership. */
export interface MeshPeers {
  readonly self: Origin;
  /**
   * Whether a router is known to have a link of its own to another one, so that it hears it without anybody's relay.
   * What is not known counts as no.
   */
  hears(router: RouterId, other: RouterId): boolean;
  /** The life of another router that is known; undefined for a router that is not. */
  epochOf(router: RouterId): number | undefined;
}
