import { connect, createServer, type Socket } from "node:net";
import { systemClock } from "@espalier/core";

/** A wire to an engine that can be cut in the middle of an answer. */
export interface CuttingProxy {
  readonly url: string;
  close(): Promise<void>;
}

/** Cuts one answer, of whichever proxy carries it. */
export interface Cut {
  /** Events of the next streamed answer that pass; undefined to cut none. */
  afterEvents: number | undefined;
  /** When the last answer was cut, on the scale of the system clock. */
  cutMs: number;
}

const eventStart = Buffer.from("data: ");
const streamedRequest = Buffer.from("POST /v1/");

/** @param engineUrl where the wire leads to */
export async function startCuttingProxy(engineUrl: string, cut: Cut): Promise<CuttingProxy> {
  const { hostname, port } = new URL(engineUrl);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const engine = connect(Number(port), hostname);
    let left = Number.POSITIVE_INFINITY;
    const end = (): void => {
      client.destroy();
      engine.destroy();
    };
    for (const socket of [client, engine]) {
      sockets.add(socket);
      socket.on("error", end);
      socket.on("close", () => {
        sockets.delete(socket);
        end();
      });
    }
    client.on("data", (bytes) => {
      if (bytes.indexOf(streamedRequest) === 0) {
        left = cut.afterEvents ?? Number.POSITIVE_INFINITY;
        cut.afterEvents = undefined;
      }
      engine.write(bytes);
    });
    engine.on("data", (bytes) => {
      let at = bytes.indexOf(eventStart);
      while (at >= 0 && left > 0) {
        left--;
        at = bytes.indexOf(eventStart, at + 1);
      }
      if (at < 0 || left > 0) {
        client.write(bytes);
        return;
      }
      // What is behind the last event that passes is lost with the engine.
      cut.cutMs = systemClock.nowMs();
      client.write(bytes.subarray(0, at), end);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("the proxy has no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
