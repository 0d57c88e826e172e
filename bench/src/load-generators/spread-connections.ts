import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/** One address in front of several routers. */
export interface Spreader {
  readonly url: string;
  /** Connections so far, by router in the order given. */
  readonly connections: readonly number[];
  stop(): Promise<void>;
}

/** Takes each connection to the next router, as a Kubernetes service does: a load generator gets one address. */
export async function spreadConnections(urls: readonly string[]): Promise<Spreader> {
  const connections = urls.map(() => 0);
  const open = new Set<Socket>();
  let next = 0;
  const server = createServer({ noDelay: true }, (client) => {
    const at = next++ % urls.length;
    connections[at]! += 1;
    const router = connect({ port: Number(new URL(urls[at]!).port), host: "127.0.0.1", noDelay: true });
    for (const [one, other] of [
      [client, router],
      [router, client],
    ] as const) {
      open.add(one);
      // A side that breaks takes the other one with it; the load generator reports it.
      one.on("error", () => other.destroy());
      one.on("close", () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections,
    async stop() {
      const closed = once(server, "close");
      server.close();
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}
