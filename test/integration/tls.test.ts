import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat } from "./client.ts";
import { httpEngine, jsonEngine } from "./engines.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Self-signed certificates for localhost and 127.0.0.1, made for these tests alone; the second signs nothing else. */
const path = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
const read = (name: string): string => readFileSync(path(name), "utf8");
const server = { "cert-file": path("localhost.crt"), "key-file": path("localhost.key") };
const local = { cert: read("localhost.crt"), key: read("localhost.key") };
const stranger = { cert: read("stranger.crt"), key: read("stranger.key") };

function ask(router: RunningRouter, tls: object, fields = {}) {
  const headers = { "content-type": "application/json" };
  const url = `${router.url}/v1/chat/completions`;
  return call(url, { method: "POST", headers, body: JSON.stringify(chat(fields)), tls });
}

test("a listener with a certificate serves HTTPS, streams and errors included", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url], config: { listen: { tls: server } } });
  expect(router.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const trust = { ca: local.cert };
  expect((await ask(router, trust)).status).toBe(200);
  expect((await ask(router, trust, { stream: true })).text).toMatch(/data: \[DONE\]\n\n$/);
  expect((await ask(router, trust, { model: 1 })).status).toBe(400);
  await expect(ask(router, {})).rejects.toThrow(/self-signed/);
  await expect(call(router.url.replace("https", "http"))).rejects.toThrow();
  expect((await ask(router, trust)).status).toBe(200);
  expect(await router.router.drain.run({ delayMs: 0, graceMs: 1_000 })).toBe(0);
});

test("with a ca-file, clients must show a certificate that it signed", async () => {
  const [sim] = await rig.sims(1);
  const tls = { ...server, "ca-file": path("localhost.crt") };
  const router = await rig.router({ engines: [sim!.url], config: { listen: { tls } } });
  const trust = { ca: local.cert };
  expect((await ask(router, { ...trust, ...local })).status).toBe(200);
  await expect(ask(router, trust)).rejects.toThrow();
  await expect(ask(router, { ...trust, ...stranger })).rejects.toThrow();
  expect((await ask(router, { ...trust, ...local })).status).toBe(200);
});

test("engines on HTTPS are asked over it when their certificate is trusted", async () => {
  const engine = await jsonEngine(rig, '{"secure":true}', { tls: local });
  const config = { "engine-tls": { "ca-file": path("localhost.crt") } };
  const router = await rig.router({ engines: [engine.url], config });
  for (let i = 0; i < 3; i++) expect((await ask(router, {})).text).toBe('{"secure":true}');
  expect(engine.id).toBe((await router.engines())[0]?.id);
});

test("an engine whose certificate is not trusted never comes up, unless nothing is checked", async () => {
  const engine = await jsonEngine(rig, "{}", { tls: stranger });
  const config = { "engine-tls": { "ca-file": path("localhost.crt") } };
  const router = await rig.router({ engines: [engine.url], config, usable: 0 });
  await waitFor(() => router.lines.some(({ message }) => message === "engine is not healthy yet"), {
    what: "a warning",
  });
  expect((await ask(router, {})).status).toBe(503);
  expect(engine.control).toEqual([]);

  const careless = await rig.router({ engines: [engine.url], config: { "engine-tls": { verify: false } } });
  expect((await ask(careless, {})).status).toBe(200);
});

test("engines that ask for a certificate get the router's", async () => {
  const engine = await httpEngine(rig, ({ response }) => response.end("{}"), {
    tls: { ...local, ca: local.cert, requestCert: true, rejectUnauthorized: true },
  });
  const trust = { "ca-file": path("localhost.crt") };
  const own = { "cert-file": path("localhost.crt"), "key-file": path("localhost.key") };
  const router = await rig.router({ engines: [engine.url], config: { "engine-tls": { ...trust, ...own } } });
  expect((await ask(router, {})).status).toBe(200);

  const nameless = await rig.router({ engines: [engine.url], config: { "engine-tls": trust }, usable: 0 });
  await waitFor(() => nameless.lines.some(({ message }) => message === "engine is not healthy yet"), {
    what: "a warning",
  });
  expect((await ask(nameless, {})).status).toBe(503);
});

test("a certificate that cannot be read is told by its path at the start", async () => {
  const tls = { ...server, "cert-file": path("absent.crt") };
  await expect(rig.router({ config: { listen: { tls } } })).rejects.toMatchObject({
    code: "config_unreadable",
    message: expect.stringContaining("absent.crt"),
  });
});
