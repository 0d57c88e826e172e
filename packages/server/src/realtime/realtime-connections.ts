import { gaugeOf, type Meter, type Scheduler } from "@espalier/core";
import { closeCodes } from "@espalier/core/websocket";
import type { Fleet } from "@espalier/engines";
import type { ClientSocket } from "./client-socket.ts";

interface ConnectionsParts {
  readonly fleet: Pick<Fleet, "onChange" | "engines">;
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  /** How long connections to a draining engine may go on. */
  readonly graceMs: () => number;
}

/** The realtime connections of a router: they end only when somebody ends them. At most as many as requests in flight. */
export class RealtimeConnections {
  readonly #open = new Set<ClientSocket>();
  readonly #count: (value: number) => void;

  constructor({ fleet, scheduler, meter, graceMs }: ConnectionsParts) {
    this.#count = gaugeOf(meter, "espalier_realtime_connections", "Open connections of the realtime API.");
    fleet.onChange((change, { url, draining }) => {
      if (change !== "gone" && !(change === "draining" && draining)) return;
      if (!this.#isAt(url)) return;
      scheduler.after(graceMs(), () => {
        const isBack = fleet.engines.some((engine) => engine.url === url && !engine.draining);
        if (!isBack) this.#close("The engine is draining.", url);
      });
    });
  }

  add(socket: ClientSocket): void {
    this.#open.add(socket);
    this.#count(this.#open.size);
    socket.onClosed(() => {
      this.#open.delete(socket);
      this.#count(this.#open.size);
    });
  }

  /** The router ends: clients should connect to another one. */
  closeAll(): void {
    this.#close("The router is draining.");
  }

  /** The listeners close: nobody waits any longer. */
  dropAll(): void {
    for (const socket of [...this.#open]) socket.drop(closeCodes.serviceRestart, "The router has ended.");
  }

  #isAt(url: string): boolean {
    for (const socket of this.#open) if (socket.engineUrl === url) return true;
    return false;
  }

  #close(reason: string, url?: string): void {
    for (const socket of [...this.#open]) {
      if (url === undefined || socket.engineUrl === url) socket.close(closeCodes.serviceRestart, reason);
    }
  }
}
