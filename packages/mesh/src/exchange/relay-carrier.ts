import type { Cancel } from "@espalier/core";
import type { Link } from "../link/link.ts";
import type { Origin } from "../origin.ts";
import type { PlaneExchange } from "../rows/plane-exchange.ts";
import type { ExchangeMeter, MeshPeers } from "./exchange-parts.ts";

export interface RelayCarrierDeps {
  readonly plane: PlaneExchange;
  readonly channel: "load" | "notes";
  readonly kind: "load" | "note";
  /** A peer without it does not know the channel. If unset, every peer knows it. */
  readonly capability?: string;
  /** Whether what it carries stays true when its writer has ended. */
  readonly outlivesWriters?: boolean;
  readonly peers: MeshPeers;
  readonly meter: ExchangeMeter;
}

/** Name of the capability to take notes. */
export const noteCapability = "notes";

/** Carries a plane: own frames to every peer at once, frames of others to peers that cannot hear them. */
export class RelayCarrier {
  readonly #deps: RelayCarrierDeps;
  readonly #links = new Set<Link>();
  #unlisten: Cancel = () => {};

  constructor(deps: RelayCarrierDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#unlisten = this.#deps.plane.onFrame((frame) => {
      for (const link of this.#links) this.#send(link, frame);
    });
  }

  stop(): void {
    this.#unlisten();
  }

  linkUp(link: Link): void {
    const { capability } = this.#deps;
    if (capability !== undefined && !link.peer.capabilities?.includes(capability)) return;
    this.#links.add(link);
    this.#deps.plane.setPeerCount?.(this.#links.size);
    this.#sendAll(link);
  }

  linkDown(link: Link): void {
    if (this.#links.delete(link)) this.#deps.plane.setPeerCount?.(this.#links.size);
  }

  /** Some frames did not fit: their content is sent again. */
  drained(link: Link): void {
    if (this.#links.has(link)) this.#sendAll(link);
  }

  /** @throws EspalierError `mesh_frame_invalid` */
  frame(link: Link, frame: Uint8Array): void {
    const { plane, peers } = this.#deps;
    const received = plane.receive(frame, (origin) => this.#isCredible(link, origin), link.roundTripMs / 2);
    if (received === undefined) return;
    const { origin, isNews } = received;
    if (!isNews || origin.router === peers.self.router) return;
    for (const other of this.#links) {
      if (other !== link && this.#depends(other, origin)) this.#send(other, frame);
    }
  }

  #sendAll(link: Link): void {
    const { plane } = this.#deps;
    for (const frame of plane.fullFrames()) this.#send(link, frame);
    for (const { origin, frame } of plane.relayFrames()) if (this.#depends(link, origin)) this.#send(link, frame);
  }

  /**
   * Whether a link may speak for an origin. Each link may speak for its own peer, in the epoch that it is linked in. It
   * may speak for other routers in their known epoch, unless they are linked here themselves. What outlives its writers
   * may come of earlier epochs, of routers that are gone, and over any link; but of no epoch later than the known one.
   */
  #isCredible(link: Link, { router, epoch }: Origin): boolean {
    const { origin: peer } = link.peer;
    if (this.#deps.outlivesWriters) {
      const known = router === peer.router ? peer.epoch : this.#deps.peers.epochOf(router);
      return epoch <= (known ?? Number.POSITIVE_INFINITY);
    }
    if (router === peer.router) return epoch === peer.epoch;
    for (const other of this.#links) if (other.peer.origin.router === router) return false;
    return this.#deps.peers.epochOf(router) === epoch;
  }

  /** Whether the peer hears of an origin only by a relay. */
  #depends(link: Link, origin: Origin): boolean {
    const { router } = link.peer.origin;
    return router !== origin.router && !this.#deps.peers.hears(router, origin.router);
  }

  #send(link: Link, frame: Uint8Array): void {
    const { meter, channel, kind, plane } = this.#deps;
    const { addition } = plane;
    const isRead = addition === undefined || link.peer.capabilities?.includes(addition.capability);
    const legible = isRead ? frame : addition.without(frame);
    if (link.send(channel, legible)) meter.sent(kind, legible.length);
    else meter.dropped(kind);
  }
}
