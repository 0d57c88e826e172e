import type { Connection, ConnectionObserver, Transport } from "@espalier/core";

export interface FaultyTransport extends Transport {
  /** All connections break, and none can be made until it is set to false. */
  setIsolated(isIsolated: boolean): void;
  /** All connections break, and may be made again at once. */
  reset(): void;
}

/** A transport whose connections can be broken, in place of a network that fails. */
export function createFaultyTransport(inner: Transport): FaultyTransport {
  const connections = new Set<Connection>();
  let isIsolated = false;
  const watch = (connection: Connection, observer: ConnectionObserver): ConnectionObserver => {
    connections.add(connection);
    return {
      frame: (bytes) => observer.frame(bytes),
      drained: () => observer.drained(),
      closed(reason) {
        connections.delete(connection);
        observer.closed(reason);
      },
    };
  };
  const reset = (): void => {
    for (const connection of [...connections]) connection.terminate();
  };
  return {
    get address() {
      return inner.address;
    },
    start: () => inner.start(),
    stop: () => inner.stop(),
    onConnection(accept) {
      inner.onConnection((connection) => {
        const watched = watch(connection, accept(connection));
        if (isIsolated) connection.terminate();
        return watched;
      });
    },
    dial(address, observer) {
      let watched: ConnectionObserver | undefined;
      inner.dial(address, {
        opened(connection) {
          watched = watch(connection, observer);
          observer.opened(connection);
          if (isIsolated) connection.terminate();
        },
        frame: (bytes) => watched?.frame(bytes),
        drained: () => watched?.drained(),
        closed: (reason) => (watched ?? observer).closed(reason),
      });
    },
    reset,
    setIsolated(isIsolatedNow) {
      isIsolated = isIsolatedNow;
      if (isIsolated) reset();
    },
  };
}
