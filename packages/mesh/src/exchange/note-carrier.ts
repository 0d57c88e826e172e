import type { Cancel } from "@espalier/common";
import type { NoteExchange, Origin } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import type { ExchangeMeter } from "./exchange-meter.ts";
import type { MeshPeers } from "./mesh-peers.ts";

export interface NoteCarrierDeps {
  readonly notes: NoteExchange;
  readonly peers: MeshPeers;
  readonly meter: ExchangeMeter;
}

/** Name of the capability to take notes: peers without it know no such channel. */
export const noteCapability = "notes";

/** Carries notes: own ones to every peer that takes them, those of others to peers that cannot hear them. */
export class NoteCarrier {
  readonly #deps: NoteCarrierDeps;
  readonly #links = new Set<Link>();
  #unlisten: Cancel = () => {};

  constructor(deps: NoteCarrierDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#unlisten = this.#deps.notes.onFrame((frame) => {
      for (const link of this.#links) this.#send(link, frame);
    });
  }

  stop(): void {
    this.#unlisten();
  }

  linkUp(link: Link): void {
    if (!link.peer.capabilities?.includes(noteCapability)) return;
    this.#links.add(link);
    this.#sendAll(link);
  }

  linkDown(link: Link): void {
    this.#links.delete(link);
  }

  /** Some frames found no room: all is said anew. */
  drained(link: Link): void {
    if (this.#links.has(link)) this.#sendAll(link);
  }

  /** @throws EspalierError `mesh_frame_invalid` */
  frame(link: Link, frame: Uint8Array): void {
    const { notes, peers } = this.#deps;
    const received = notes.receive(frame);
    if (!received?.isNews || received.origin.router === peers.self.router) return;
    for (const other of this.#links) {
      if (other !== link && this.#depends(other, received.origin)) this.#send(other, frame);
    }
  }

  #sendAll(link: Link): void {
    const { notes } = this.#deps;
    for (const frame of notes.fullFrames()) this.#send(link, frame);
    for (const { origin, frame } of notes.relayFrames()) if (this.#depends(link, origin)) this.#send(link, frame);
  }

  /** Whether the peer hears of an origin only by a relay. */
  #depends(link: Link, origin: Origin): boolean {
    const { router } = link.peer.origin;
    return router !== origin.router && !this.#deps.peers.hears(router, origin.router);
  }

  #send(link: Link, frame: Uint8Array): void {
    const { meter } = this.#deps;
    if (link.send("notes", frame)) meter.sent("note", frame.length);
    else meter.dropped("note");
  }
}
