import { readFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { Agent, get } from "node:https";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, errorOf, post, type RawConnection, rawConnection, rawPost } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const request = rawPost("/v1/chat/completions", JSON.stringify(chat()));
const answer = /\r\n\r\n\{[\s\S]+\}/;

async function connections(router: RunningRouter, count: number): Promise<readonly RawConnection[]> {
  const before = await openAt(router);
  const open: RawConnection[] = [];
  for (let number = 0; number < count; number++) open.push(await rawConnection(router.port));
  await waitFor(async () => (await openAt(router)) === before + count, { what: `${count} more connections` });
  return open;
}

const openAt = async (router: RunningRouter): Promise<number> =>
  (await router.metrics()).sum("espalier_open_connections", { listener: "clients" });

test("the connection past the bound is told so with 503 and a time to come again, and closed; probes are answered on it", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { limits: { "max-connections": 2 } } });
  const kept = await connections(router, 2);
  for (const connection of kept) {
    connection.write(request);
    expect(await connection.until(answer)).toMatch(/^HTTP\/1\.1 200 /);
  }

  const [rejected] = await connections(router, 1);
  rejected!.write(request);
  const refusal = await rejected!.until(answer);
  expect(refusal).toMatch(/^HTTP\/1\.1 503 [\s\S]*"code":"too_many_connections"/);
  expect(refusal).toMatch(/retry-after: 1\r\n/i);
  expect(refusal).toMatch(/connection: close\r\n/i);
  await rejected!.closed();
  const probe = await call(`${router.url}/livez`);
  expect([probe.status, probe.headers.connection]).toEqual([200, "close"]);

  // Those that were there first are served as ever.
  kept[0]!.write(request);
  await kept[0]!.until(/200 [\s\S]*200 /);
  const page = await router.metrics();
  expect(page.sum("espalier_refused_connections_total", { listener: "clients", outcome: "answered" })).toBe(2);
  const linesWith = (part: string) => router.lines.filter(({ message }) => message.startsWith(part));
  expect(linesWith("connection limit reached")).toMatchObject([{ level: "warn", fields: { max: 2 } }]);

  for (const { socket } of kept) socket.destroy();
  await waitFor(async () => (await openAt(router)) === 0, { what: "no connections" });
  expect(linesWith("accepting connections again")).toHaveLength(1);
  expect((await call(`${router.url}/v1/models`)).status).toBe(200);
});

test("of those beyond the bound 256 are kept until they ask; the next one is closed at once", async () => {
  const router = await rig.router({ config: { limits: { "max-connections": 1 } } });
  await connections(router, 257);
  const next = await rawConnection(router.port);
  await next.closed();
  expect(next.received()).toBe("");
  const page = await router.metrics();
  expect(page.sum("espalier_refused_connections_total", { listener: "clients", outcome: "closed" })).toBe(1);
  expect(page.sum("espalier_open_connections", { listener: "clients" })).toBe(257);
});

test("over TLS it is told after the handshake", async () => {
  const path = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
  const tls = { "cert-file": path("localhost.crt"), "key-file": path("localhost.key") };
  const config = { limits: { "max-connections": 1 }, listen: { tls } };
  const router = await rig.router({ config });
  const ask = () => call(`${router.url}/v1/models`, { tls: { ca: readFileSync(path("localhost.crt"), "utf8") } });
  expect((await ask()).status).toBe(200);
  await waitFor(async () => (await openAt(router)) === 0, { what: "no connections" });
  const agent = new Agent({ keepAlive: true, ca: readFileSync(path("localhost.crt"), "utf8") });
  rig.own(() => agent.destroy());
  const status = await new Promise((resolve, reject) =>
    get(`${router.url}/livez`, { agent }, (response) => resolve(response.resume().statusCode)).on("error", reject),
  );
  expect(status).toBe(200);
  expect((await ask()).status).toBe(503);
});

test("as many requests as may be in flight are served; one more is refused with a time to come again, until one has ended", async () => {
  const held: ServerResponse[] = [];
  const engine = await httpEngine(rig, ({ response }) => void held.push(response));
  const limits = { "max-concurrent-requests": 2 };
  const router = await rig.router({ engines: [engine.url], config: { limits, admission: { mode: "off" } } });
  const url = `${router.url}/v1/chat/completions`;
  const ask = () => post(url, chat());
  const first = ask();
  const second = ask();
  await waitFor(() => held.length === 2, { what: "two requests at the engine" });
  const refused = await ask();
  expect([refused.status, errorOf(refused).code, held.length]).toEqual([429, "overloaded", 2]);
  expect(refused.headers["retry-after"]).toBeDefined();
  for (const response of held.splice(0)) response.end("{}");
  expect([(await first).status, (await second).status]).toEqual([200, 200]);
  const third = ask();
  await waitFor(() => held.length === 1, { what: "a request in their place" });
  held[0]!.end("{}");
  expect((await third).status).toBe(200);
});
