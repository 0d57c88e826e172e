import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { KubernetesApi } from "@espalier/testing";
import type { Rig } from "./rig.ts";

/**
 * Serves an API over real sockets until the rig is closed.
 *
 * @param tls files of a certificate for `localhost` and its key; without, it is served in the clear
 * @returns its URL
 */
export async function serveApi(
  rig: Rig,
  api: KubernetesApi,
  tls?: { readonly cert: string; readonly key: string },
): Promise<string> {
  const onRequest = ({ url = "", headers }: IncomingMessage, response: ServerResponse): void => {
    const gone = api.answer(url, headers, {
      head(status, given) {
        response.writeHead(status, given);
        response.flushHeaders();
      },
      data: (text) => void response.write(text),
      end: () => void response.end(),
      drop: () => response.socket?.resetAndDestroy(),
    });
    response.on("close", gone).on("error", () => {});
  };
  const server = tls
    ? createHttpsServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, onRequest)
    : createHttpServer(onRequest);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    server.closeAllConnections();
    server.close();
  });
  return `${tls ? "https://localhost" : "http://127.0.0.1"}:${(server.address() as AddressInfo).port}`;
}
