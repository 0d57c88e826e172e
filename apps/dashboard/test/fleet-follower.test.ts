import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createFleetFollower, type FleetFollower } from "../src/follow/fleet-follower.ts";
import { type DocumentListener, silenceTimeoutMs } from "../src/follow/follower.ts";
import { link, sections } from "./fixtures.ts";

/** A router as the page sees it, with everything that can happen to it. */
interface FakeRouter {
  readonly origin: string;
  isUp: boolean;
  key: string | undefined;
  links: readonly object[];
  asked: number;
  /** Requests per second of its last seconds, and the time of the last of them. */
  history: readonly number[];
  historyMs: number;
  /** After when it was asked for its history. */
  since: string[];
  document: DocumentListener | undefined;
  stream: ReadableStreamDefaultController<Uint8Array> | undefined;
}

const encoder = new TextEncoder();
const nameOf = (origin: string): string => new URL(origin).hostname;

function createWorld(names: readonly string[]) {
  const time: VirtualTime = createVirtualTime();
  const routers = new Map<string, FakeRouter>();
  for (const name of names) {
    const links = names.filter((other) => other !== name).map((other) => link(other));
    const origin = `http://${name}:9090`;
    routers.set(origin, {
      origin,
      isUp: true,
      key: undefined,
      links,
      asked: 0,
      history: [],
      historyMs: 0,
      since: [],
      document: undefined,
      stream: undefined,
    });
  }
  const routerAt = (url: string): FakeRouter => {
    const router = routers.get(new URL(url).origin);
    if (!router?.isUp) throw new TypeError("failed to fetch");
    return router;
  };
  const ports = {
    time: { ...time.clock, ...time.scheduler },
    async fetch(url: string, { headers, signal }: RequestInit): Promise<Response> {
      const router = routerAt(url);
      if (url.endsWith("/admin/dashboard")) router.asked += 1;
      const given = (headers as Record<string, string>).authorization;
      if (router.key !== undefined && given !== `Bearer ${router.key}`) return new Response("", { status: 401 });
      const name = nameOf(router.origin);
      if (url.endsWith("/admin/dashboard")) return Response.json({ router: name, document: `overview/${name}` });
      const { pathname, searchParams } = new URL(url);
      if (pathname === "/admin/history") {
        const after = searchParams.get("after") ?? "";
        router.since.push(after);
        const requestsPerS = Number(after) > 0 ? [] : router.history;
        const nowMs = time.clock.wallMs();
        router.historyMs ||= nowMs;
        const atMs = requestsPerS.map((_, at) => nowMs - (requestsPerS.length - 1 - at) * 1_000);
        return Response.json({ nowMs, atMs, requestsPerS });
      }
      const body = new ReadableStream<Uint8Array>({
        start(controller) {
          router.stream = controller;
          signal?.addEventListener("abort", () => controller.error(new Error("aborted")));
        },
      });
      return new Response(body);
    },
    followDocument: ({ origin }: { readonly origin: string }, listener: DocumentListener) => {
      const router = routerAt(origin);
      router.document = listener;
      const tell = () => listener.sections(sections({ router: nameOf(origin), links: router.links }));
      time.scheduler.after(10, tell);
      return { close() {} };
    },
  };
  return { time, routers, ports };
}

function startPage(names: readonly string[], others: readonly string[] = names.slice(1)) {
  const world = createWorld(names);
  let key: string | undefined;
  let locked = 0;
  const fleet: FleetFollower = createFleetFollower({
    home: `http://${names[0]}:9090`,
    others: others.map((name) => `http://${name}:9090`),
    key: () => key,
    ports: world.ports,
    onChange: () => {},
    onUnauthorized: () => locked++,
  });
  const at = (name: string): FakeRouter => world.routers.get(`http://${name}:9090`)!;
  return {
    ...world,
    fleet,
    at,
    locked: () => locked,
    setKey: (given: string) => {
      key = given;
    },
    settle: () => world.time.advanceAsync(100),
    decide: (name: string, number: number, session: string, target: string) => {
      const decisions = [{ number, atMs: world.time.clock.wallMs(), session, target, reason: "least_time" }];
      at(name).stream?.enqueue(
        encoder.encode(`event: decisions\ndata: ${JSON.stringify({ decisions, skipped: 1 })}\n\n`),
      );
    },
    /** As SIGKILL does it: its sockets are reset, and the others say so. */
    kill: (name: string) => {
      const router = at(name);
      router.isUp = false;
      for (const [, other] of world.routers) {
        other.links = other.links.map((one) =>
          (one as { router: string }).router === name ? link(name, { state: "down" }) : one,
        );
      }
      router.stream?.error(new Error("reset"));
      router.document?.closed();
    },
  };
}

const source = ({ fleet }: { readonly fleet: FleetFollower }) => fleet.state().source?.router;

test("the page reads from where it came from, and follows the others through it", async () => {
  const page = startPage(["a", "b", "c"]);
  await page.settle();
  expect(source(page)).toBe("a");
  await page.settle();
  expect(page.fleet.state().followed.map(({ router, isLive }) => [router, isLive])).toEqual([
    ["a", true],
    ["b", true],
    ["c", true],
  ]);
  expect(page.fleet.state()).toMatchObject({ moved: undefined, live: { length: 3 } });
});

test("when its router is killed it reads from another one at once, and says so", async () => {
  const page = startPage(["a", "b", "c"]);
  await page.settle();
  await page.settle();
  page.decide("a", 1, "s1", "engine-a");
  await page.settle();
  page.kill("a");
  await page.settle();
  const { moved, overview, followed } = page.fleet.state();
  expect([source(page), moved?.from, moved?.to, overview?.links.router]).toEqual(["b", "a", "b", "b"]);
  expect(followed[0]).toMatchObject({ router: "a", isLive: false });
  page.decide("b", 1, "s1", "engine-a");
  await page.settle();
  expect(page.fleet.state().takeovers).toMatchObject([{ router: "a", sessions: 1, cameBack: 1, keptEngine: 1 }]);
  expect(page.fleet.state()).toMatchObject({ skipped: 2, decisions: { length: 2 } });
});

test("a router of which others say that it is gone is not asked again until they say otherwise", async () => {
  const page = startPage(["a", "b"]);
  await page.settle();
  await page.settle();
  page.kill("a");
  await page.settle();
  page.at("b").document?.sections(sections({ router: "b", links: page.at("b").links }));
  const { asked } = page.at("a");
  // The other one shows signs of life meanwhile.
  for (let second = 0; second < 60; second++) {
    page.at("b").stream?.enqueue(encoder.encode(": here\n\n"));
    await page.time.advanceAsync(1_000);
  }
  expect([source(page), page.at("a").asked]).toEqual(["b", asked]);
  page.at("a").isUp = true;
  page.at("b").document?.sections(sections({ router: "b", links: [link("a")] }));
  for (let second = 0; second < 20; second++) {
    page.at("b").stream?.enqueue(encoder.encode(": here\n\n"));
    await page.time.advanceAsync(1_000);
  }
  expect(page.at("a").asked).toBeGreaterThan(asked);
  expect(source(page)).toBe("b");
});

test("a router that is silent counts as gone, whatever its socket says", async () => {
  const page = startPage(["a", "b"]);
  await page.settle();
  await page.settle();
  for (let second = 0; second * 1_000 < silenceTimeoutMs + 2_000; second++) {
    page.at("b").stream?.enqueue(encoder.encode(": here\n\n"));
    await page.time.advanceAsync(1_000);
  }
  expect(source(page)).toBe("b");
});

test("when nobody answers, what was seen last stays, and the first that comes back is read", async () => {
  const page = startPage(["a"], []);
  await page.settle();
  expect(page.fleet.state().silentSinceMs).toBeUndefined();
  const silentSinceMs = page.time.clock.wallMs();
  page.kill("a");
  await page.settle();
  await page.time.advanceAsync(500);
  expect(page.fleet.state().silentSinceMs).toBe(silentSinceMs);
  expect([page.fleet.state().source?.isLive, page.fleet.state().overview?.engines.length]).toEqual([false, 2]);
  page.at("a").isUp = true;
  await page.time.advanceAsync(3_000);
  expect([source(page), page.fleet.state().source?.isLive, page.fleet.state().moved]).toEqual(["a", true, undefined]);
  expect(page.fleet.state().silentSinceMs).toBeUndefined();
});

test("routers to which the page may not talk are not asked", async () => {
  const page = startPage(["a", "b", "c"], ["b"]);
  await page.settle();
  await page.settle();
  expect([page.at("b").asked, page.at("c").asked]).toEqual([1, 0]);
});

test("a router that wants a key is left alone until there is one", async () => {
  const page = startPage(["a"], []);
  page.at("a").key = "right";
  page.fleet.restart();
  await page.settle();
  const before = page.at("a").asked;
  await page.time.advanceAsync(60_000);
  expect([page.locked() > 0, page.at("a").asked, source(page)]).toEqual([true, before, undefined]);
  page.setKey("right");
  page.fleet.restart();
  await page.settle();
  expect(source(page)).toBe("a");
});

test("plots have what routers remember from before the page was opened, and keep it when a router is gone", async () => {
  const page = startPage(["a", "b"]);
  for (const name of ["a", "b"]) page.at(name).history = [4, 4, 4, 4, 4, 4, 4, 4, 4, 4];
  await page.settle();
  await page.time.advanceAsync(2_000);
  const known = () => page.fleet.series().requestsPerS.filter((each) => each === 8).length;
  expect(known()).toBeGreaterThan(4);
  const before = known();
  page.kill("b");
  await page.settle();
  expect(known()).toBe(before);
  expect(page.at("a").since.slice(0, 2)).toEqual(["0", String(page.at("a").historyMs)]);
});
