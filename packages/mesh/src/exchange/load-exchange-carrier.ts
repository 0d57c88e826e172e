import type { Cancel } from "@espalier/common";
import type { LoadExchange, Origin } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import type { MeshPeers } from "./mesh-peers.ts";

export interface LoadCarrierDeps {
  readonly load: LoadExchange;
  readonly peers: MeshPeers;
  readonly meter: ExchangeMeter;
}

/** Carries load gauges: own ones to every peer at once, those of others to peers that cannot hear them. */
export class LoadExchangeCarrier {
  readonly #deps: LoadCarrierDeps;
  /** Links, and whether gauges of the other end have come by them. */
  readonly #links = new Map<Link, boolean>();
  #unlisten: Cancel = () => {};

  constructor(deps: LoadCarrierDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#unlisten = this.#deps.load.onFrame((frame) => {
      for (const link of this.#links.keys()) this.#send(link, frame);
    });
  }

  stop(): void {
    this.#unlisten();
  }

  /** Whether every peer's gauges have come. */
  get hasAll(): boolean {
    for (const hasHeard of this.#links.values()) if (!hasHeard) return false;
    return true;
  }

  linkUp(link: Link): void {
    this.#links.set(link, false);
    this.#sendAll(link);
  }

  linkDown(link: Link): void {
    this.#links.delete(link);
  }

  /** Some frames found no room: what they said is said anew, in absolute values. */
  drained(link: Link): void {
    if (this.#links.has(link)) this.#sendAll(link);
  }

  /** @throws EspalierError `mesh_frame_invalid` */
  frame(link: Link, frame: Uint8Array): void {
    const { load, peers } = this.#deps;
    const { origin, isNews } = load.receive(frame);
    const from = link.peer.origin.router;
    if (origin.router === from && this.#links.has(link)) this.#links.set(link, true);
    if (!isNews || origin.router === peers.self.router) return;
    for (const other of this.#links.keys()) {
      if (other !== link && this.#depends(other, origin)) this.#send(other, frame);
    }
  }

  /** An origin whose process is gone counts zero at once; its lease need not run out. */
  memberGone(origin: Origin): void {
    this.#deps.load.originGone(origin);
  }

  #sendAll(link: Link): void {
    const { load } = this.#deps;
    this.#send(link, load.fullFrame());
    for (const { origin, frame } of load.relayFrames()) if (this.#depends(link, origin)) this.#send(link, frame);
  }

  /** Whether the peer hears of an origin only by a relay. */
  #depends(link: Link, origin: Origin): boolean {
    const { router } = link.peer.origin;
    return router !== origin.router && !this.#deps.peers.hears(router, origin.router);
  }

  #send(link: Link, frame: Uint8Array): void {
    const { meter } = this.#deps;
    if (link.send("load", frame)) meter.sent("load", frame.length);
    else meter.dropped("load");
  }
}
