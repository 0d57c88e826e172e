import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Logger, Meter } from "@espalier/common";

export interface ConnectionLimitOptions {
  /** Which listener it is, for the metrics. */
  readonly listener: string;
  /** Connections that are served. */
  readonly max: () => number;
  /** Connections beyond them that are kept until they can be told so; the next ones are closed at once. */
  readonly told: number;
  readonly meter: Meter;
  readonly logger: Logger;
}

/** Bounds the connections of a listener. */
export interface ConnectionLimit {
  /** @param isTls whether the server speaks TLS, so that a connection can be told something only after its handshake */
  watch(server: Server, isTls: boolean): void;
  /** Whether what is asked on this connection is to be refused, and the connection closed with the answer. */
  isSurplus(socket: Socket): boolean;
}

/** Below this share of the bound it is over, for the log. */
const easedShare = 0.9;

/**
 * A connection that is closed without a word looks like a broken network to a client, which tries again at once. So some of
 * those beyond the bound are kept until they ask for something, and told when to come again.
 */
export function createConnectionLimit({ listener, max, told, meter, logger }: ConnectionLimitOptions): ConnectionLimit {
  const meters = createMeters(meter, listener);
  const surplus = new WeakSet<Socket>();
  let surplusCount = 0;
  let servedCount = 0;
  let openCount = 0;
  let isFull = false;

  const noteFull = (): void => {
    if (isFull) return;
    isFull = true;
    logger.warn("connections are refused: there are as many as may be", { listener, max: max() });
  };
  const serve = (socket: Socket): void => {
    servedCount += 1;
    socket.once("close", () => {
      servedCount -= 1;
      if (!isFull || servedCount >= easedShare * max()) return;
      isFull = false;
      logger.info("connections are taken again", { listener });
    });
  };
  const enter = (socket: Socket): void => {
    if (servedCount < max()) {
      serve(socket);
      return;
    }
    surplus.add(socket);
    surplusCount += 1;
    socket.once("close", () => {
      surplusCount -= 1;
    });
    meters.refused("answered");
    noteFull();
  };
  const connected = (socket: Socket): boolean => {
    if (openCount >= max() + told) {
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
    isSurplus: (socket) => surplusCount > 0 && surplus.has(socket),
  };
}

function createMeters(meter: Meter, listener: string) {
  const refused = meter.counter({
    name: "espalier_refused_connections_total",
    help: "Connections beyond the bound: answered with 503 and closed, or closed at once.",
    labels: ["listener", "how"],
  });
  const open = meter.gauge({
    name: "espalier_open_connections",
    help: "Connections that are open at a listener, clients' or operators'.",
    labels: ["listener"],
  });
  return {
    open: open.series(listener),
    refused: (how: "answered" | "closed") => refused.series(listener, how).add(),
  };
}
