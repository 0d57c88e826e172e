import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type Dispatcher, Pool } from "undici";

/**
 * The least that Node can do between a client and several engines: only `node:http` and undici. It reads no body, knows
 * no engine's state and retries nothing. A router's cost beyond it is the price of routing.
 */
export interface BareProxy {
  readonly url: string;
  stop(): Promise<void>;
}

/** Streams in both directions, to the engines in turn. */
export async function startBareProxy(engineUrls: readonly string[]): Promise<BareProxy> {
  const pools = engineUrls.map((url) => new Pool(url, { connections: 1_024, pipelining: 1 }));
  let turn = 0;
  const server = createServer((request, response) => {
    pass(pools[turn++ % pools.length]!, request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await Promise.all(pools.map((pool) => pool.destroy()));
    },
  };
}

function pass(pool: Pool, request: IncomingMessage, response: ServerResponse): void {
  const options = {
    method: request.method ?? "GET",
    path: request.url ?? "/",
    headers: request.rawHeaders,
    body: request,
  };
  pool.dispatch(options as Dispatcher.DispatchOptions, {
    onRequestStart(controller) {
      response.on("drain", () => controller.resume());
      response.on("close", () => {
        if (!response.writableFinished) controller.abort(new Error("the client went away"));
      });
    },
    onResponseStart(_, status, headers) {
      response.writeHead(status, headers as Record<string, string | string[]>);
    },
    onResponseData(controller, chunk) {
      if (!response.write(chunk)) controller.pause();
    },
    onResponseEnd() {
      response.end();
    },
    onResponseError() {
      response.destroy();
    },
  });
}
