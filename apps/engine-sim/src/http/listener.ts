import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Cancel, Scheduler } from "@espalier/core";
import { listenForUpgrades } from "./upgrades.ts";

/** An HTTP server that can close its port for a while. */
export type Listener = ReturnType<typeof createListener>;

interface ListenerOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  readonly scheduler: Scheduler;
  readonly onRequest: RequestListener;
}

/** Delay before another attempt when another process took the port. */
const retryMs = 50;

export function createListener({ host, port: wantedPort, scheduler, onRequest }: ListenerOptions) {
  const server = createServer(onRequest);
  listenForUpgrades(server, onRequest);
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  let port = wantedPort;
  let cancel: Cancel | undefined;

  const listenAgain = (): void => {
    listenOn(server, host, port).catch(() => {
      cancel = scheduler.after(retryMs, listenAgain);
    });
  };
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      // Also those that have been upgraded.
      for (const socket of sockets) socket.destroy();
    });
  return {
    /** The port, once `listen` has resolved. */
    get port() {
      return port;
    },
    /** Rejects when the address cannot be listened on. */
    async listen(): Promise<void> {
      await listenOn(server, host, port);
      port = (server.address() as AddressInfo).port;
    },
    /** Closes the listening socket and every connection, and listens on the same port again after `durationMs`. */
    refuseFor(durationMs: number): void {
      void close();
      cancel?.();
      cancel = scheduler.after(durationMs, listenAgain);
    },
    stop(): Promise<void> {
      cancel?.();
      return close();
    },
  };
}

function listenOn(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.removeListener("error", reject);
      resolve();
    });
  });
}
