import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** @returns a port whose bytes arrive at another one, and its answers here, so many milliseconds late */
export async function slowPortFor(port: number, delayMs: number): Promise<number> {
  const sockets = new Set<Socket>();
  const pass = (from: Socket, to: Socket): void => {
    sockets.add(from);
    from.setNoDelay(true);
    from.on("error", () => from.destroy());
    from.on("data", (bytes) => setTimeout(() => to.writable && to.write(bytes), delayMs));
    from.once("close", () => setTimeout(() => to.destroy(), delayMs));
  };
  const server = createServer((socket) => {
    const onward = connect(port, "127.0.0.1");
    pass(socket, onward);
    pass(onward, socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}
