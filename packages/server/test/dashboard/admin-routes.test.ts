import { EspalierError } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import fastify from "fastify";
import { afterEach, expect, test } from "vitest";
import { createWhoMayRead, guardAdmin, registerPreflights } from "../../src/admin/admin-access.ts";
import { describeRoutes } from "../../src/admin/admin-api.ts";
import { registerIndex, registerPage } from "../../src/admin/dashboard.ts";
import { registerDecisions } from "../../src/admin/decision-stream.ts";
import { createDecisionFeed, maxDecisionWatchers } from "../../src/decisions/decision-feed.ts";

const closings: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closings.splice(0)) await close();
});

const peer = "http://127.0.0.1:9091";
const files = [
  { name: "index.html", contentType: "text/html; charset=utf-8", text: '<html data-origins="">the page</html>' },
  { name: "app.js", contentType: "text/javascript; charset=utf-8", text: "go()" },
];

function start({
  isOpen = true,
  hasPage = true,
  origins = [peer] as readonly string[],
  advertised = undefined as string | undefined,
} = {}) {
  const app = fastify();
  describeRoutes(app);
  app.setErrorHandler((error, _, reply) =>
    reply.code(error instanceof EspalierError ? error.kind.status : 500).send({ code: (error as EspalierError).code }),
  );
  const who = createWhoMayRead({ origins: () => origins, advertised, isOpen });
  guardAdmin(app, who);
  registerPreflights(app);
  registerIndex(app, hasPage);
  if (hasPage)
    registerPage(
      app,
      async () => files,
      () => origins,
    );
  app.get("/admin/dashboard", async () => ({ router: "r1" }));
  app.get("/admin/status", async () => ({}));
  app.post("/admin/reload", async () => ({}));
  closings.push(() => app.close());
  return { app, who };
}

test("the page comes with its policy and the routers that it may talk to, its files as they are", async () => {
  const { app } = start();
  const page = await app.inject({ url: "/dashboard/" });
  expect([page.statusCode, page.body]).toEqual([200, `<html data-origins="${peer}">the page</html>`]);
  expect(page.headers["content-security-policy"]).toContain(`connect-src 'self' ${peer} ws://127.0.0.1:9091`);
  expect(page.headers).toMatchObject({
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
  });
  expect((await app.inject({ url: "/dashboard/index.html" })).body).toBe(page.body);
  const script = await app.inject({ url: "/dashboard/app.js" });
  expect([script.body, script.headers["content-type"]]).toEqual(["go()", "text/javascript; charset=utf-8"]);
});

test.each(["/dashboard/other.js", "/dashboard/..%2fpackage.json", "/dashboard/__proto__"])(
  "%s is not there",
  async (url) => {
    const { app } = start();
    expect((await app.inject({ url })).statusCode).toBe(404);
  },
);

test("browsers are led to the page, where there is one; all others learn which paths there are", async () => {
  const { app } = start();
  const html = { accept: "text/html,*/*" };
  const browser = await app.inject({ url: "/", headers: html });
  expect([browser.statusCode, browser.headers.location]).toEqual([302, "/dashboard/"]);
  expect((await app.inject({ url: "/dashboard" })).headers.location).toBe("/dashboard/");
  const { app: hidden } = start({ hasPage: false });
  for (const answer of [await app.inject({ url: "/" }), await hidden.inject({ url: "/", headers: html })]) {
    expect([answer.statusCode, answer.headers["content-type"]]).toEqual([200, "text/plain; charset=utf-8"]);
    expect(answer.body).toContain("/admin/status");
  }
});

test("pages of other routers may read what the dashboard asks for, and nothing else", async () => {
  const { app } = start();
  const allowed = async (url: string, origin: string) =>
    (await app.inject({ url, headers: { origin } })).headers["access-control-allow-origin"];
  expect(await allowed("/admin/dashboard", peer)).toBe(peer);
  expect(await allowed("/admin/dashboard?x=1", "http://localhost:9091")).toBe("http://localhost:9091");
  expect(await allowed("/admin/dashboard", "http://127.0.0.1:9092")).toBeUndefined();
  expect(await allowed("/admin/dashboard", "https://127.0.0.1:9091")).toBeUndefined();
  expect(await allowed("/admin/dashboard", "http://evil.example")).toBeUndefined();
  expect(await allowed("/admin/dashboard", "null")).toBeUndefined();
  expect(await allowed("/admin/status", peer)).toBeUndefined();
  expect((await app.inject({ url: "/admin/dashboard" })).headers.vary).toBe("origin");
});

test("a preflight is answered to them alone", async () => {
  const { app } = start();
  const ask = (url: string, origin: string) => app.inject({ method: "OPTIONS", url, headers: { origin } });
  const granted = await ask("/admin/decisions", peer);
  expect(granted.statusCode).toBe(204);
  expect(granted.headers).toMatchObject({
    "access-control-allow-origin": peer,
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "authorization",
  });
  expect((await ask("/admin/decisions", "http://evil.example")).statusCode).toBe(404);
  expect((await ask("/admin/status", peer)).statusCode).toBe(404);
});

test("a listener without a key reads nothing out under a name that may have been led here", async () => {
  const ask = async (isOpen: boolean, host: string) =>
    (await start({ isOpen }).app.inject({ url: "/admin/dashboard", headers: { host } })).statusCode;
  for (const host of ["127.0.0.1:9090", "localhost", "[::1]:9090"]) expect(await ask(true, host), host).toBe(200);
  for (const host of ["evil.example:9090", "127.0.0.1.evil.example"]) expect(await ask(true, host), host).toBe(400);
  expect(await ask(false, "router.example")).toBe(200);
});

test.each([
  [undefined, "127.0.0.1:9090", true],
  ["http://127.0.0.1:9090", "127.0.0.1:9090", true],
  ["http://localhost:9090", "localhost:9090", true],
  [peer, "127.0.0.1:9090", true],
  ["http://127.0.0.1:9999", "127.0.0.1:9090", false],
  ["http://evil.example", "127.0.0.1:9090", false],
  ["http://evil.example:9090", "evil.example:9090", false],
  ["null", "127.0.0.1:9090", false],
])("a websocket of a page from %s at %s: %s", (origin, host, allowed) => {
  const { who } = start();
  const headers = { host, ...(origin === undefined ? {} : { origin }) };
  expect(who.refusal({ method: "GET", headers }) === undefined).toBe(allowed);
});

test("with a key, a page may be of any name under which the listener is found", () => {
  const { who } = start({ isOpen: false });
  const headers = { host: "router.example:9090", origin: "http://router.example:9090" };
  expect(who.refusal({ method: "GET", headers })).toBeUndefined();
  const foreign = { ...headers, origin: "http://evil.example" };
  expect(who.refusal({ method: "GET", headers: foreign })?.code).toBe("cross_origin_request");
});

/*
 * A page of any site could reload a router, and add engines to it: browsers send a POST of a plain type without asking, and to
 * 127.0.0.1 its Host header is in order.
 */
const own = "127.0.0.1:9090";
test.each([
  ["a page of another site", { origin: "https://evil.example" }, 403],
  ["a page without an origin", { origin: "null" }, 403],
  ["a page of another site, which the browser calls so", { "sec-fetch-site": "cross-site" }, 403],
  ["a page of another port", { origin: "http://127.0.0.1:1", "sec-fetch-site": "same-site" }, 403],
  ["the page of another router", { origin: peer }, 403],
  [
    "a form of another site",
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", origin: "https://evil.example" },
    403,
  ],
  ["a program", {}, 200],
  ["a page of its own", { origin: `http://${own}` }, 200],
  ["a page of its own, which the browser calls so", { origin: "http://other", "sec-fetch-site": "same-origin" }, 200],
  ["the page at the advertised origin", { origin: "https://router.example" }, 200],
  ["what a user types", { "sec-fetch-site": "none" }, 200],
] as const)("a change from %s: %o is answered with %i", async (_, sent, status) => {
  for (const isOpen of [true, false]) {
    const { app } = start({ isOpen, advertised: "https://router.example" });
    const headers = { host: own, ...sent };
    expect((await app.inject({ method: "POST", url: "/admin/reload", headers })).statusCode).toBe(status);
  }
});

test.each([
  ["a link", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate" }, 200],
  ["an image", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" }, 403],
  ["the page of another router", { origin: peer, "sec-fetch-site": "same-site", "sec-fetch-mode": "cors" }, 200],
] as const)("a read by %s of another site", async (_, sent, status) => {
  const { app } = start();
  const headers = { host: own, ...sent };
  expect((await app.inject({ url: "/admin/dashboard", headers })).statusCode).toBe(status);
});

test("one reader of decisions too many is told to come back later", async () => {
  const { scheduler } = createVirtualTime();
  const feed = createDecisionFeed({ scheduler, seed: "s" });
  for (let at = 0; at < maxDecisionWatchers; at++) feed.watch(() => {});
  const { app } = start();
  registerDecisions(app, feed, scheduler);
  expect((await app.inject({ url: "/admin/decisions" })).statusCode).toBe(429);
});

/* A HEAD never ended: Node drops the body of its answer, and no head was sent before the body. Each held a reader's place. */
test("a HEAD of the decisions ends with the head of the stream, and takes no reader's place", async () => {
  const { scheduler } = createVirtualTime();
  const feed = createDecisionFeed({ scheduler, seed: "s" });
  const { app } = start();
  registerDecisions(app, feed, scheduler);
  const { statusCode, headers, body } = await app.inject({ method: "HEAD", url: "/admin/decisions" });
  expect([statusCode, headers["content-type"], body]).toEqual([200, "text/event-stream; charset=utf-8", ""]);
  expect(feed.isWatched).toBe(false);
});
