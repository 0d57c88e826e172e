import { lookup } from "node:dns/promises";
import type { Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { EspalierError, type Logger, type Meter, type Startable } from "@espalier/core";
import type { FastifyInstance } from "fastify";

interface ListenAddress {
  /** What sets the port, for the message when it is taken. */
  readonly setting: string;
  readonly host: string;
  /** 0 selects a free port. */
  readonly port: number;
  /** Whether the application serves HTTPS. */
  readonly tls: unknown;
  /** Whether the other processes of a group may listen on it too, so that they share its connections. */
  readonly isShared: boolean;
}

/** An application and the address it listens on while it runs. */
interface Listener extends Startable {
  readonly app: FastifyInstance;
  /** The URL under which it is reached; empty before the start. */
  readonly url: string;
}

/** `start` throws EspalierError `listen_failed` when the address is unavailable. */
export function createListener(app: FastifyInstance, { setting, host, port, tls, isShared }: ListenAddress): Listener {
  let url = "";
  return {
    app,
    get url() {
      return url;
    },
    async start() {
      await app.ready();
      try {
        // For the name localhost fastify would open a second server on its other address, which no drain closes.
        const { address } = await lookup(host);
        await app.listen({ host: address, port, exclusive: !isShared });
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        throw new EspalierError("listen_failed", `Cannot listen on ${host}:${port} (${setting}): ${reason}`, {
          cause: error,
        });
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

interface ConnectionLimitOptions {
  /** Which listener it is, for the metrics. */
  readonly listener: string;
  /** Most connections that are served. */
  readonly max: () => number;
  /** Connections beyond `max` that are kept open to answer a request with 503; further ones are closed at once. */
  readonly maxRejected: () => number;
  readonly meter: Meter;
  readonly logger: Logger;
}

/** Bounds the connections of a listener. */
export interface ConnectionLimit {
  /** @param isTls whether the server speaks TLS: a connection can be answered only after its handshake */
  watch(server: Server, isTls: boolean): void;
  /** Whether to answer requests on this connection with 503 and close it. */
  isRejected(socket: Socket): boolean;
}

/** The log reports recovery once connections fall below this share of the limit. */
const resumeShare = 0.9;

/**
 * A client takes a connection closed without an answer for a broken network and retries at once. So some connections
 * beyond the limit stay open until they send a request, which gets 503 and Retry-After.
 */
export function createConnectionLimit({
  listener,
  max,
  maxRejected,
  meter,
  logger,
}: ConnectionLimitOptions): ConnectionLimit {
  const meters = createMeters(meter, listener);
  const rejected = new WeakSet<Socket>();
  let rejectedCount = 0;
  let servedCount = 0;
  let openCount = 0;
  let isFull = false;

  const noteFull = (): void => {
    if (isFull) return;
    isFull = true;
    logger.warn("connection limit reached: refusing connections", { listener, max: max() });
  };
  const serve = (socket: Socket): void => {
    servedCount += 1;
    socket.once("close", () => {
      servedCount -= 1;
      if (!isFull || servedCount >= resumeShare * max()) return;
      isFull = false;
      logger.info("accepting connections again", { listener });
    });
  };
  const enter = (socket: Socket): void => {
    if (servedCount < max()) {
      serve(socket);
      return;
    }
    rejected.add(socket);
    rejectedCount += 1;
    socket.once("close", () => {
      rejectedCount -= 1;
    });
    meters.refused("answered");
    noteFull();
  };
  const connected = (socket: Socket): boolean => {
    if (openCount >= max() + maxRejected()) {
      meters.refused("closed");
      noteFull();
      socket.destroy();
      return false;
    }
    meters.open.set(++openCount);
    socket.once("close", () => meters.open.set(--openCount));
    return true;
  };
  return {
    watch(server, isTls) {
      server.on("connection", (socket) => {
        if (connected(socket) && !isTls) enter(socket);
      });
      if (isTls) server.on("secureConnection", enter);
    },
    isRejected: (socket) => rejectedCount > 0 && rejected.has(socket),
  };
}

function createMeters(meter: Meter, listener: string) {
  const refused = meter.counter(
    "espalier_refused_connections_total",
    "Connections beyond the limit: answered with 503 and closed, or closed at once.",
    ["listener", "outcome"],
  );
  const open = meter.gauge("espalier_open_connections", "Open connections by listener: clients or operators.", [
    "listener",
  ]);
  return {
    open: open.series(listener),
    refused: (how: "answered" | "closed") => refused.series(listener, how).add(),
  };
}
