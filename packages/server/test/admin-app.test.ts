import { createHash } from "node:crypto";
import { asEngineId } from "@espalier/core";
import { createRecordingLogger, tokensOf } from "@espalier/testing";
import { afterEach, describe, expect, test } from "vitest";
import { createWhoMayRead } from "../src/admin/admin-access.ts";
import { type AdminDependencies, createAdminApp } from "../src/admin/admin-app.ts";
import { stored } from "./prefix/fake-events.ts";
import { type FeedsRig, startFeedsRig, vllmSources } from "./prefix/feeds-rig.ts";
import { specOf } from "./prefix/scripted-fleet.ts";

const closings: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});

/** What the dashboard adds is tested by itself. */
const routes = {} as AdminDependencies["dashboard"]["routes"];

async function start(changes: Partial<AdminDependencies> = {}) {
  const rig: FeedsRig = await startFeedsRig();
  rig.answers.a = { "/kv_event_sources": vllmSources(5557, { ranks: 2 }) };
  await rig.apply(specOf("a", { ranks: 2 }));
  const logger = createRecordingLogger();
  const app = createAdminApp({
    fleet: rig.fleet,
    logger,
    readiness: () => ({ ready: true, reasons: [] }),
    renderMetrics: async () => ({ contentType: "text/plain; version=0.0.4", body: "up 1\n" }),
    status: () => ({ ready: true }),
    scale: () => ({}),
    feeds: () => rig.feeds.describe(),
    mesh: () => undefined,
    assignedRoleOf: () => undefined,
    operators: { add: () => asEngineId("a"), remove: () => {} },
    moveStreams: () => {},
    dashboard: { who: createWhoMayRead({ origins: () => [], isOpen: !changes.keySha256 }), routes },
    describeConfig: () => ({ policy: "least_work" }),
    reload: () => ({ trigger: "admin", atMs: 0, applied: [], needsRestart: [], error: undefined }),
    explain: async () => ({}),
    past: { find: async (requestId) => ({ requestId, router: null, decisions: [] }) },
    programs: () => ({ programs: [], counts: { queued: 0, running: 0, idle: 0, ended: 0 }, pauses: [] }),
    maxExplainedBytes: 100_000,
    tls: undefined,
    keySha256: undefined,
    ...changes,
  });
  closings.push(() => app.close());
  return { rig, app, logger };
}

describe("GET /admin/feeds", () => {
  test("tells of every target with a feed, as plain JSON", async () => {
    const { rig, app } = await start();
    rig.socket("tcp://a:5558").up();
    rig.socket("tcp://a:5558").tell(0, stored(tokensOf("a", 64), { first: 1 }));
    await rig.time.advanceAsync(2_000);
    const response = await app.inject({ url: "/admin/feeds" });
    const { feeds } = response.json() as { feeds: readonly object[] };
    expect(response.statusCode).toBe(200);
    expect(feeds).toHaveLength(2);
    expect(feeds[0]).toMatchObject({
      ...{ target: "a", endpoint: "tcp://a:5557", state: "stale", reason: "connecting" },
      ...{ blocks: { gpu: 0, cpu: 0, disk: 0, external: 0 }, lastMessageAgeMs: null, unusable: null },
    });
    expect(feeds[1]).toMatchObject({
      ...{ target: "a#1", endpoint: "tcp://a:5558", state: "live", reason: "complete" },
      ...{ blocks: { gpu: 4 }, lastMessageAgeMs: 2_000, lastSequence: 0, floatingBlocks: 0 },
    });
  });

  test("says why a feed is of no use", async () => {
    const { rig, app } = await start();
    rig.socket("tcp://a:5557").up();
    rig.socket("tcp://a:5557").tell(0, stored(tokensOf("a", 48), { first: 1, size: 24 }));
    const { feeds } = (await app.inject({ url: "/admin/feeds" })).json() as { feeds: readonly object[] };
    expect(feeds[0]).toMatchObject({ target: "a", unusable: "block-size-ratio" });
  });

  test("is an empty list when there are none", async () => {
    const { app } = await start({ feeds: () => [] });
    expect((await app.inject({ url: "/admin/feeds" })).json()).toEqual({ feeds: [] });
  });
});

describe("a key", () => {
  const guarded = ["/metrics", "/admin/status", "/admin/config", "/admin/feeds", "/admin/engines"];
  const keySha256 = createHash("sha256").update("right").digest();

  test.each(guarded)("is asked for at %s", async (url) => {
    const { app } = await start({ keySha256 });
    const statusWith = async (authorization?: string) =>
      (await app.inject({ url, headers: authorization === undefined ? {} : { authorization } })).statusCode;
    expect(await statusWith()).toBe(401);
    expect(await statusWith("Bearer wrong")).toBe(401);
    expect(await statusWith("Bearer right")).toBe(200);
    expect(await statusWith("bearer  right")).toBe(200);
    expect(await statusWith("right")).toBe(200);
  });

  test("is not asked for where there is none", async () => {
    const { app } = await start();
    for (const url of guarded) expect((await app.inject({ url })).statusCode, url).toBe(200);
  });
});

describe("PATCH /admin/engines/:id", () => {
  const patch = (payload: string) => ({
    method: "PATCH" as const,
    url: "/admin/engines/a",
    headers: { "content-type": "application/json" },
    payload,
  });

  test("drains an engine and takes it back, and the log says so", async () => {
    const { app, rig, logger } = await start();
    for (const draining of [true, false]) {
      const response = await app.inject(patch(JSON.stringify({ draining })));
      expect(response.json()).toMatchObject({ id: "a", draining });
      expect(rig.engine("a").draining).toBe(draining);
      expect(logger.lines.at(-1)).toMatchObject({ fields: { engine: "a", draining } });
    }
  });

  test.each(["{}", "[]", "null", '"draining"', '{"draining":1}', '{"draining":null}'])(
    "refuses the body %s",
    async (body) => {
      const { app, rig } = await start();
      const response = await app.inject(patch(body));
      expect([response.statusCode, response.json().error.param]).toEqual([400, "draining"]);
      expect(rig.engine("a").draining).toBe(false);
    },
  );

  test("does not know every engine", async () => {
    const { app } = await start();
    const response = await app.inject({ ...patch('{"draining":true}'), url: "/admin/engines/z" });
    expect([response.statusCode, response.json().error.code]).toEqual([404, "engine_not_found"]);
  });
});

describe("without a key", () => {
  const post = (host: string) => ({
    method: "POST" as const,
    url: "/admin/engines",
    headers: { host, "content-type": "application/json" },
    payload: '{"url":"http://a:1"}',
  });

  test.each(["localhost:9090", "127.0.0.1:9090", "[::1]:9090", "LOCALHOST"])("%s may change things", async (host) => {
    const { app } = await start();
    expect((await app.inject(post(host))).statusCode).toBe(201);
  });

  test.each(["evil.example", "10.0.0.1:9090", "localhost.evil.example", "127.0.0.1.evil.example"])(
    "%s may not",
    async (host) => {
      const { app } = await start();
      const response = await app.inject(post(host));
      expect([response.statusCode, response.json().error.code]).toEqual([400, "invalid_header"]);
    },
  );

  /*
   * A page of any site could read metrics, engines and configuration: its name, rebound to 127.0.0.1, was checked only for
   * changes and at four literal paths, which a percent-encoded letter went around.
   */
  const paths = ["/metrics", "/admin/status", "/admin/%64ashboard", "/admin/dashboard?x", "/dashboard/", "/nowhere"];
  test.each(paths)("%s is read under no name that DNS may have rebound", async (url) => {
    const { app } = await start();
    for (const method of ["GET", "HEAD"] as const) {
      const response = await app.inject({ method, url, headers: { host: "evil.example:9090" } });
      expect(response.statusCode, method).toBe(400);
    }
  });

  test("a forwarded port reads by an address, which no DNS answer can rebind", async () => {
    const { app } = await start();
    for (const host of ["10.0.0.1:9090", "[fd00::1]:9090", "127.0.0.1"]) {
      expect((await app.inject({ url: "/metrics", headers: { host } })).statusCode, host).toBe(200);
    }
  });

  test("probes answer under every name", async () => {
    const { app } = await start();
    for (const url of ["/livez", "/readyz"]) {
      expect((await app.inject({ url, headers: { host: "router.default.svc" } })).statusCode, url).toBe(200);
    }
  });

  test("text is no JSON, whatever it contains", async () => {
    const { app } = await start();
    const response = await app.inject({
      ...post("localhost"),
      headers: { host: "localhost", "content-type": "text/plain" },
    });
    expect([response.statusCode, response.json().error.code]).toEqual([415, "unsupported_media_type"]);
  });

  test("whoever has the key may call it as he likes", async () => {
    const { app } = await start({ keySha256: createHash("sha256").update("right").digest() });
    const asked = post("router.internal");
    const response = await app.inject({ ...asked, headers: { ...asked.headers, authorization: "Bearer right" } });
    expect(response.statusCode).toBe(201);
  });
});

describe("one engine", () => {
  test("is described by its id", async () => {
    const { app } = await start();
    expect((await app.inject({ url: "/admin/engines/a" })).json()).toMatchObject({ id: "a", assigned_role: null });
    expect((await app.inject({ url: "/admin/engines/z" })).json().error.code).toBe("engine_not_found");
  });
});

describe("POST /admin/explain", () => {
  const echo: AdminDependencies["explain"] = async ({ body, headers }, endpoint) => ({
    bytes: Buffer.isBuffer(body) ? body.toString("utf8").length : null,
    session: headers["x-session-id"],
    endpoint,
  });
  const post = (app: Awaited<ReturnType<typeof start>>["app"], payload: string, url = "/admin/explain") =>
    app.inject({ method: "POST", url, payload, headers: { "content-type": "application/json", "x-session-id": "s" } });

  test("hands over the body as it is, the headers and the endpoint that is named", async () => {
    const { app } = await start({ explain: echo });
    expect((await post(app, "no JSON")).json()).toEqual({ bytes: 7, session: "s" });
    const named = await post(app, "{}", "/admin/explain?endpoint=chat");
    expect(named.json()).toEqual({ bytes: 2, session: "s", endpoint: "chat" });
  });

  test("takes bodies as long as clients may send, and no longer; other routes keep their bound", async () => {
    const { app } = await start({ explain: echo });
    expect((await post(app, "x".repeat(100_000))).json()).toMatchObject({ bytes: 100_000 });
    const refused = await post(app, "x".repeat(100_001));
    expect([refused.statusCode, refused.json().error.code]).toEqual([413, "body_too_large"]);
    const patch = await app.inject({
      method: "PATCH",
      url: "/admin/engines/a",
      payload: JSON.stringify({ draining: true, padding: "x".repeat(70_000) }),
      headers: { "content-type": "application/json" },
    });
    expect(patch.statusCode).toBe(413);
  });

  test("needs the key", async () => {
    const { app } = await start({ explain: echo, keySha256: createHash("sha256").update("k").digest() });
    expect((await post(app, "{}")).statusCode).toBe(401);
  });
});
