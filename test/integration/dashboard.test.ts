import { once } from "node:events";
import { dashboardFiles } from "@espalier/dashboard";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { call, chat, type Json, post } from "./client.ts";
import { startProxy } from "./http-proxy.ts";
import { joinRouter, type MeshView, meshOf, meshRouters, untilLinked, untilRead } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Follows the decisions of a router until the test is over. */
async function watchDecisions({ adminUrl }: RunningRouter, headers: Record<string, string> = {}) {
  const controller = new AbortController();
  rig.own(() => controller.abort());
  const response = await fetch(`${adminUrl}/admin/decisions`, { signal: controller.signal, headers });
  let text = "";
  const reading = (async () => {
    for await (const piece of response.body ?? []) text += Buffer.from(piece).toString("utf8");
  })().catch(() => {});
  const all = () =>
    [...text.matchAll(/^event: decisions\ndata: (.*)$/gm)].flatMap(
      ([, data = "{}"]) => (JSON.parse(data) as { decisions: readonly Record<string, unknown>[] }).decisions,
    );
  return { status: response.status, headers: response.headers, text: () => text, all, controller, reading };
}

/** @returns `open`, or why a page of this origin may not follow a document */
async function upgradeAt(url: string, origin: string): Promise<string> {
  const socket = new WebSocket(url, { origin });
  const opened = once(socket, "open").then(() => "open");
  const failed = new Promise<string>((resolve) => socket.once("error", ({ message }) => resolve(message)));
  opened.catch(() => {});
  const outcome = await Promise.race([opened, failed]);
  socket.terminate();
  return outcome;
}

test("who watches is told of each decision, with its reason and without the prompt", async () => {
  const sims = await rig.sims(2);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
  await post(`${router.url}/v1/chat/completions`, chat());
  const watched = await watchDecisions(router);
  expect(watched.headers.get("content-type")).toMatch(/^text\/event-stream/);
  const prompt = "nobody but the engine should read this";
  const body = chat({ messages: [{ role: "user", content: prompt }], user: "alice" });
  for (let at = 0; at < 3; at++) await post(`${router.url}/v1/chat/completions`, body);
  await waitFor(() => watched.all().length === 3, { what: "three decisions" });
  expect(watched.all()).toMatchObject(
    [1, 2, 3].map((number) => ({
      ...{ number, endpoint: "chat", model: "tiny", policy: "round_robin", reason: "rotation", attempt: 1 },
      ...{ class: "default", session: expect.stringMatching(/^[0-9a-f]{8}$/), matchedTokens: 0 },
    })),
  );
  expect(new Set(watched.all().map(({ target }) => target))).toEqual(new Set(sims.map(({ id }) => id)));
  expect(watched.text()).not.toContain("nobody");
  expect(watched.text()).not.toContain("alice");
});

test("a router that ends ends those who watch", async () => {
  const router = await rig.router();
  const watched = await watchDecisions(router);
  await router.router.stop();
  await watched.reading;
});

test("a router that shares nothing tells its overview and its prefixes all the same", async () => {
  const [sim] = await rig.sims(1);
  const router = await rig.router({ engines: [sim!.url] });
  const { json } = await router.admin("GET", "/admin/dashboard");
  expect(json).toEqual({ router: "router", document: "overview/router", killCommand: null, grafana: null });
  expect((await router.admin("GET", "/admin/prefixes")).json).toMatchObject({ blockSize: 16, prefixes: [] });
  const socket = new WebSocket(`${router.adminUrl.replace("http", "ws")}/yjs/overview/router`);
  await once(socket, "open");
  await router.router.stop();
  await once(socket, "close");
});

test("routers of a mesh tell each other where their pages are, and let these read; other pages they refuse", async () => {
  const sims = await publishingSims(rig, 2);
  const [one, other] = (await meshRouters(rig, 2, sims, { page: { files: async () => dashboardFiles() } })) as [
    RunningRouter,
    RunningRouter,
  ];
  await untilRead([one, other], 2);
  const readBy = async (origin: string) =>
    (await call(`${one.adminUrl}/admin/dashboard`, { headers: { origin } })).headers["access-control-allow-origin"];
  await waitFor(async () => (await readBy(other.adminUrl)) === other.adminUrl, { what: "the other router's origin" });
  expect(await readBy("http://127.0.0.1:1")).toBeUndefined();
  const upgrade = (origin: string) => upgradeAt(`${one.adminUrl.replace("http", "ws")}/yjs/overview/router-0`, origin);
  expect(await upgrade(other.adminUrl)).toBe("open");
  expect(await upgrade(one.adminUrl)).toBe("open");
  expect(await upgrade("http://evil.example")).toContain("403");

  const common = tokensOf(1, 320);
  for (let at = 0; at < 3; at++) {
    await ask(one, "/v1/completions", { prompt: [...common, ...tokensOf(10 + at, 64)], max_tokens: 1 });
  }
  const shared = async () => {
    const { prefixes } = (await one.admin("GET", "/admin/prefixes")).json as {
      prefixes: readonly { blocks: number; holders: readonly { isReported: boolean }[] }[];
    };
    return prefixes.find(({ blocks }) => blocks === 20);
  };
  await waitFor(async () => (await shared())?.holders[0]?.isReported, {
    what: "a prefix that its engine has announced",
  });
});

test("who asks a router is told which others differ, and which were refused and why", async () => {
  const join = (name: string, seed: RunningRouter | undefined, mesh: Json = {}, config: Json = {}) =>
    joinRouter(rig, seed, [], { tokenizes: false, mesh: { "router-id": name, ...mesh }, config });
  const asked = await join("asked", undefined);
  const same = await join("same", asked, {}, { drain: { grace: "1s" } });
  const other = await join("other", asked, {}, { policy: "random", prefix: { "placement-ttl": "1m" } });
  await join("stranger", asked, { secret: "another secret than that of the routers" });
  const until = (what: string, holds: (view: MeshView) => boolean) =>
    waitFor(async () => holds(await meshOf(asked)), { what, deadlineMs: 10_000 });
  await untilLinked([asked, same, other]);
  await until("the settings of the others", ({ members }) => members.some(({ differs }) => differs.length > 0));
  await until("a refusal", ({ refused }) => refused.some(({ by, reason }) => by === "self" && reason === "secret"));
  const { members, lost } = await meshOf(asked);
  expect(members.map(({ router, differs }) => [router, differs]).sort()).toEqual([
    ["other", ["policy", "prefix"]],
    ["same", []],
  ]);
  expect(lost).toEqual([]);
});

test("behind proxies, pages are told where browsers find the other routers, and may read there", async () => {
  const text = '<html data-origins=""></html>';
  const files = [{ name: "index.html", contentType: "text/html; charset=utf-8", text }];
  const routers: RunningRouter[] = [];
  const proxies: string[] = [];
  for (let at = 0; at < 2; at++) {
    proxies.push(await startProxy(rig.own, () => routers[at]!.adminUrl));
    const config = { admin: { advertise: proxies[at] } };
    const mesh = { "router-id": `router-${at}` };
    routers.push(
      await joinRouter(rig, routers[0], [], { tokenizes: false, config, mesh, page: { files: async () => files } }),
    );
  }
  await untilLinked(routers);
  const page = (at: number) => call(`${proxies[at]}/dashboard/`);
  await waitFor(async () => (await page(0)).text.includes(`data-origins="${proxies[1]}"`), {
    what: "the other's origin",
  });
  expect((await page(0)).headers["content-security-policy"]).toContain(
    `'self' ${proxies[1]} ${proxies[1]?.replace("http", "ws")};`,
  );
  const upgrade = (at: number, origin: string) =>
    upgradeAt(`${proxies[at]?.replace("http", "ws")}/yjs/overview/router-${at}`, origin);
  for (const at of [0, 1]) {
    const asked = { headers: { origin: proxies[1 - at]! } };
    const { headers } = await call(`${proxies[at]}/admin/dashboard`, asked);
    expect(headers["access-control-allow-origin"]).toBe(proxies[1 - at]);
    expect(await upgrade(at, proxies[1 - at]!)).toBe("open");
    // The page of the router itself, whose proxy has changed the name that was asked for.
    expect(await upgrade(at, proxies[at]!)).toBe("open");
    expect(await upgrade(at, "http://evil.example")).toContain("403");
  }
});

test("the page is served, or not, as the configuration says; the key is for what it asks", async () => {
  const files = [{ name: "index.html", contentType: "text/html; charset=utf-8", text: "<html></html>" }];
  const shown = await rig.router({
    page: { files: async () => files },
    config: { admin: { key: "the operators' key" } },
  });
  expect((await call(`${shown.adminUrl}/dashboard/`)).status).toBe(200);
  expect((await call(`${shown.adminUrl}/admin/dashboard`)).status).toBe(401);
  expect((await watchDecisions(shown)).status).toBe(401);
  const authorization = "Bearer the operators' key";
  expect((await watchDecisions(shown, { authorization })).status).toBe(200);
  const hidden = await rig.router({ page: { files: async () => files }, config: { admin: { dashboard: false } } });
  expect((await call(`${hidden.adminUrl}/dashboard/`)).status).toBe(404);
  const root = await call(`${hidden.adminUrl}/`, { headers: { accept: "text/html" } });
  expect([root.status, root.headers["content-type"]]).toEqual([200, "text/plain; charset=utf-8"]);
});
