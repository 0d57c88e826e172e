import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** Passes bytes on to a port of this machine, until told not to. */
export interface TcpRelay {
  readonly port: number;
  /** While it is cut, connections are broken as soon as they are made. */
  setCut(isCut: boolean): void;
  /** Connections break, and may be made again at once. */
  reset(): void;
  close(): Promise<void>;
}

export async function startTcpRelay(toPort: number): Promise<TcpRelay> {
  const sockets = new Set<Socket>();
  let isCut = false;
  const track = (socket: Socket): Socket => {
    sockets.add(socket);
    socket.on("error", () => socket.destroy());
    socket.once("close", () => sockets.delete(socket));
    return socket;
  };
  const server = createServer((socket) => {
    track(socket);
    if (isCut) {
      socket.resetAndDestroy();
      return;
    }
    const onward = track(connect(toPort, "127.0.0.1"));
    for (const each of [socket, onward]) each.setNoDelay(true);
    socket.pipe(onward).pipe(socket);
    socket.once("close", () => onward.destroy());
    onward.once("close", () => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const breakAll = (): void => {
    for (const socket of [...sockets]) socket.destroy();
  };
  return {
    port,
    setCut(isCheckpointNow) {
      isCut = isCheckpointNow;
      if (isCut) breakAll();
    },
    reset: breakAll,
    async close() {
      breakAll();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
