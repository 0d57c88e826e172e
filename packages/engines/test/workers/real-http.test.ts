import { createServer, get, type Server } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import {
  createSeededRandom,
  EspalierError,
  type HttpClient,
  type HttpResponse,
  silentLogger,
  silentMeter,
  systemClock,
  systemScheduler,
} from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { createFleet, type Fleet, type FleetOptionsInput } from "../../src/workers/index.ts";
import { makeSpec } from "./fleet-harness.ts";

const cleanups: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

/** The port over node:http, as small as it can be. */
const nodeHttp: HttpClient = ({ url, timeoutMs, maxBytes }) =>
  new Promise<HttpResponse>((resolve, reject) => {
    const request = get(url, { agent: false, signal: AbortSignal.timeout(timeoutMs) }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        body += chunk;
        if (body.length > maxBytes) request.destroy(new EspalierError("upstream_protocol_error"));
      });
      response.on("end", () => resolve({ status: response.statusCode ?? 0, headers: {}, body }));
      response.on("error", reject);
    });
    request.on("error", (error: NodeJS.ErrnoException) => {
      if (error instanceof EspalierError) reject(error);
      else if (error.name === "AbortError" || error.name === "TimeoutError")
        reject(new EspalierError("upstream_timeout"));
      else if (error.code === "ECONNREFUSED") reject(new EspalierError("upstream_connect_failed"));
      else reject(new EspalierError("upstream_protocol_error"));
    });
  });

const quick: FleetOptionsInput = {
  health: { intervalMs: 60, firstRetryMs: 10, timeoutMs: 200 },
  scrape: { intervalMs: 30, timeoutMs: 200 },
};

async function startFleet(): Promise<Fleet> {
  const fleet = createFleet({
    clock: systemClock,
    scheduler: systemScheduler,
    random: createSeededRandom(1),
    http: nodeHttp,
    logger: silentLogger,
    meter: silentMeter,
    options: quick,
  });
  await fleet.start();
  cleanups.push(() => fleet.stop());
  return fleet;
}

async function startEngine(port = 0): Promise<{ url: string; port: number; close(): Promise<void> }> {
  const pages: Record<string, string> = {
    "/health": "",
    "/v1/models": '{"object":"list","data":[{"id":"real","object":"model"}]}',
    "/metrics": "vllm:num_requests_running 2\n",
  };
  const server: Server = createServer((request, response) => {
    const page = pages[request.url ?? ""];
    response.writeHead(page === undefined ? 404 : 200, { connection: "close" }).end(page);
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  const address = server.address() as AddressInfo;
  const close = (): Promise<void> => new Promise((resolve) => server.close(() => resolve()));
  cleanups.push(close);
  return { url: `http://127.0.0.1:${address.port}`, port: address.port, close };
}

test("an engine is found, scraped, lost and found again over real sockets", async () => {
  const fleet = await startFleet();
  const engine = await startEngine();
  const spec = makeSpec("real", { url: engine.url });
  fleet.apply([spec]);
  await waitFor(() => fleet.usableCount() === 1, { what: "usable engine" });
  expect(fleet.models().map(({ id }) => id)).toEqual(["real"]);
  await waitFor(() => fleet.pool("real")[0]?.signals.running === 2, { what: "scraped page" });
  await engine.close();
  await waitFor(() => fleet.engine(spec.id)?.state === "down", { what: "engine down" });
  expect(fleet.engine(spec.id)?.stateReason).toBe("3 failed probes, last: unreachable");
  await startEngine(engine.port);
  await waitFor(() => fleet.usableCount() === 1, { what: "engine back" });
});

test.each<[string, (socket: Socket) => void, string]>([
  ["accepts and says nothing", () => {}, "timeout"],
  ["accepts and hangs up", (socket) => socket.destroy(), "protocol"],
  ["speaks another protocol", (socket) => socket.end("SSH-2.0-OpenSSH\r\n"), "protocol"],
  ["never ends its answer", (socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"), "timeout"],
  ["sends more than allowed", (socket) => socket.end(`HTTP/1.1 200 OK\r\n\r\n${"x".repeat(70_000)}`), "protocol"],
])("a listener that %s is no engine", async (_, answer, outcome) => {
  const sockets = new Set<Socket>();
  const server = createTcpServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    answer(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((resolve) => void server.close(() => resolve()));
  });
  const fleet = await startFleet();
  const spec = makeSpec("odd", { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  fleet.apply([spec]);
  await waitFor(() => (fleet.engine(spec.id)?.health.consecutiveFailures ?? 0) >= 2, { what: "two failed probes" });
  expect(fleet.engine(spec.id)).toMatchObject({ state: "starting", health: { lastOutcome: outcome } });
  expect(fleet.usableCount()).toBe(0);
});
