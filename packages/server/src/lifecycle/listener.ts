import { lookup } from "node:dns/promises";
import type { AddressInfo } from "node:net";
import { EspalierError, type Startable } from "@espalier/common";
import type { FastifyInstance } from "fastify";

export interface ListenAddress {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  /** Whether the application serves HTTPS. */
  readonly tls: unknown;
  /** Whether the other processes of a group may listen on it too, so that each takes a part of the connections. */
  readonly isShared: boolean;
}

/** An application and the address it listens on while it runs. */
export interface Listener extends Startable {
  readonly app: FastifyInstance;
  /** The URL under which it is reached; empty before the start. */
  readonly url: string;
}

/** `start` throws EspalierError `listen_failed` when the address cannot be had. */
export function createListener(app: FastifyInstance, { host, port, tls, isShared }: ListenAddress): Listener {
  let url = "";
  return {
    app,
    get url() {
      return url;
    },
    async start() {
      await app.ready();
      try {
        // Given the name localhost, fastify would open a second server for its other address, which no drain knows of.
        const { address } = await lookup(host);
        await app.listen({ host: address, port, exclusive: !isShared });
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new EspalierError("listen_failed", `Cannot listen on ${host}:${port}: ${reason}`, { cause: error });
      }
      const address = app.server.address() as AddressInfo;
      const name = address.family === "IPv6" ? `[${address.address}]` : address.address;
      url = `${tls ? "https" : "http"}://${name}:${address.port}`;
    },
    async stop() {
      app.server.closeAllConnections();
      await app.close();
    },
  };
}
