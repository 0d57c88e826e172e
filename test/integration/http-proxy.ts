import { once } from "node:events";
import { type ClientRequest, createServer, request as httpRequest, type IncomingMessage } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/**
 * A proxy that asks under the name of what is behind it, as most do unless told otherwise.
 *
 * @param own is given what stops it
 * @param target URL of what is behind it, asked for with each request
 * @returns its origin
 */
export async function startProxy(own: (stop: () => void) => void, target: () => string): Promise<string> {
  const pass = (request: IncomingMessage): ClientRequest => {
    const { host, port } = new URL(target());
    return httpRequest({ port, path: request.url, method: request.method, headers: { ...request.headers, host } });
  };
  const server = createServer((request, response) => {
    pass(request)
      .on("error", () => response.destroy())
      .on("response", (answer) => answer.pipe(response.writeHead(answer.statusCode ?? 502, answer.headers)))
      .end();
  });
  server.on("upgrade", (request, socket: Socket) => {
    pass(request)
      .on("error", () => socket.destroy())
      .on("upgrade", ({ headers }, upstream) => {
        const lines = Object.entries(headers).map(([name, value]) => `${name}: ${String(value)}\r\n`);
        socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("")}\r\n`);
        upstream
          .on("error", () => {})
          .pipe(socket.on("error", () => {}))
          .pipe(upstream);
      })
      .on("response", ({ statusCode }) => socket.end(`HTTP/1.1 ${statusCode} no\r\n\r\n`))
      .end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  own(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
