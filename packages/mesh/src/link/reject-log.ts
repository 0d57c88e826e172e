import type { Clock, Logger } from "@espalier/common";
import type { Rejection } from "../wire/endings.ts";
import type { LinkMeters } from "./link-meters.ts";

/** Time in which the same rejection of the same address is logged once. */
const quietMs = 60_000;
/** Pairs of address and reason that are remembered as logged. */
const maxLoggedRejections = 256;

export interface RejectedPeer {
  /** `host:port`; only the host counts for those who dialed this router, since their port changes every time. */
  readonly address: string;
  readonly hasDialedUs: boolean;
  readonly by: "us" | "peer";
}

/** Counts every rejection, and logs the first of each address and reason in a while. */
export class RejectLog {
  readonly #logger: Logger;
  readonly #clock: Clock;
  readonly #meters: LinkMeters;
  readonly #loggedMs = new Map<string, number>();

  constructor(deps: { readonly logger: Logger; readonly clock: Clock; readonly meters: LinkMeters }) {
    this.#logger = deps.logger;
    this.#clock = deps.clock;
    this.#meters = deps.meters;
  }

  add({ address, hasDialedUs, by }: RejectedPeer, { reason, detail }: Rejection): void {
    this.#meters.rejected(reason);
    const place = hasDialedUs ? address.replace(/:\d+$/, "") : address;
    const key = `${place} ${reason} ${by}`;
    const nowMs = this.#clock.nowMs();
    const loggedMs = this.#loggedMs.get(key);
    if (loggedMs !== undefined && nowMs - loggedMs < quietMs) return;
    this.#loggedMs.delete(key);
    if (this.#loggedMs.size >= maxLoggedRejections) {
      const [oldest] = this.#loggedMs.keys();
      this.#loggedMs.delete(oldest!);
    }
    this.#loggedMs.set(key, nowMs);
    const message = by === "us" ? "a router was refused" : "this router was refused by another one";
    this.#logger.warn(message, { address: place, reason, detail, code: "mesh_rejected" });
  }
}
