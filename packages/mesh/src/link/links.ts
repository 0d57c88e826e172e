import type { Clock, Logger, Meter, Random, RouterId, Scheduler, Startable } from "@espalier/common";
import type { Transport } from "../transport/transport.ts";
import type { VersionRange } from "../wire/hello.ts";
import type { Link, LinkObserver } from "./link.ts";
import type { LinkLimits } from "./link-limits.ts";
import type { LocalIdentity } from "./local-identity.ts";

/** What keeps strangers out. Without either, the transport may listen on this machine only. */
export type LinkSecurity =
  /** One to four, the own one first: links are made with whoever knows one of them. */
  | { readonly kind: "secret"; readonly secrets: readonly string[] }
  /** The transport takes only peers with a certificate. */
  | { readonly kind: "mutual-tls" }
  | { readonly kind: "insecure" };

export interface LinksOptions {
  readonly transport: Transport;
  /** Asked for every handshake, since the epoch may be renewed. */
  readonly identity: () => LocalIdentity;
  readonly security: LinkSecurity;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly meter: Meter;
  readonly observer: LinkObserver;
  /** The highest epoch known of a router, 0 for none. */
  readonly highestEpoch: (router: RouterId) => number;
  /** A peer that knows the secret knows a later life of this router: it should begin one that is later still. */
  readonly onEpochBehind: (knownEpoch: number) => void;
  readonly limits?: Partial<LinkLimits>;
  readonly versions?: VersionRange;
}

/** The links to all other routers: one for each, however many connections were tried. */
export interface Links extends Startable {
  /** Where others can reach this router, `host:port`; empty before the start. */
  readonly address: string;
  /**
   * Keeps a link to whoever is at the address, for as long as it is not forgotten.
   *
   * @returns false when too many addresses are dialed already
   */
  dial(address: string): boolean;
  /** Ends the dialing; a link that exists stays. */
  forget(address: string): void;
  links(): readonly Link[];
  /**
   * Changes what other routers may know, where they are authenticated by a secret. Links to those that have proved one
   * that does not count any more are ended one after the other, and made anew where both ends know another.
   *
   * @throws RangeError for none, too many, or an empty one
   */
  setSecrets(secrets: readonly string[]): void;
}
