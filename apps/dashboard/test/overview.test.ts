import { expect, test } from "vitest";
import { onPageClock, readOverview } from "../src/model/overview.ts";
import {
  countAlive,
  countHealthy,
  engineRows,
  isIdle,
  queueRows,
  queuesNote,
  routerRows,
  viewedEngines,
} from "../src/model/rows.ts";
import { link, sections } from "./fixtures.ts";

test("an overview of another version, or none, is one in which things are absent", () => {
  for (const strange of [undefined, null, 7, [], { engines: { tooLarge: true }, links: 3, traffic: [] }]) {
    const read = readOverview(strange);
    const { engines, load, queues, links, traffic } = read;
    expect([engines, load, queues, links.links, traffic.requests]).toEqual([[], [], null, [], 0]);
  }
  const [engine] = readOverview({ engines: [{ id: 5, read: ["x", { target: "a", held: "many" }] }] }).engines;
  expect(engine).toMatchObject({ id: "", state: "unknown", models: [] });
  expect(engine?.targets.map(({ target, held, kvUse }) => [target, held, kvUse])).toEqual([
    ["", 0, null],
    ["a", 0, null],
  ]);
});

test("a row of an engine has the load of all routers, what it holds, and its share of all that is held", () => {
  const rows = engineRows(readOverview(sections()));
  expect(rows).toMatchObject([
    { key: "engine-a", health: "up", inFlight: 5, kvUse: 0.25, blocks: 30, share: 0.75, source: "facts" },
    { key: "engine-b", health: "up", inFlight: 0, blocks: 10, share: 0.25, source: "facts" },
  ]);
});

test("a row of an engine says what any router waits for there", () => {
  const read = (more: object) =>
    readOverview({ engines: [{ id: "a", state: "up", read: [{ target: "a" }], ...more }] });
  const source = read({ oldestSinceMs: 9_000, ttftMs: 640, tpotMs: 21.5 });
  const slow = { measure: "ttft", ms: 4_600, othersMs: 600 };
  const other = read({ oldestSinceMs: 5_000, unresponsiveSinceMs: 6_000, slow });
  const without = { oldestSinceMs: 9_000, unresponsiveSinceMs: null, slow: null, ttftMs: 640, tpotMs: 21.5 };
  expect(engineRows(source)).toMatchObject([without]);
  expect(engineRows(source, [source, other])).toMatchObject([
    { ...without, oldestSinceMs: 5_000, unresponsiveSinceMs: 6_000, slow },
  ]);
});

test.each([
  [{ state: "down", reason: "refused" }, "down", "refused"],
  [{ state: "starting" }, "starting", "not probed yet"],
  [{ state: "starting", reason: "new" }, "starting", "not probed yet"],
  [{ state: "starting", reason: "12 failed probes" }, "starting", "12 failed probes"],
  [{ breaker: "open" }, "open", "circuit breaker open"],
  [{ breaker: "open", breakerReason: "5 of 10 failed" }, "open", "5 of 10 failed"],
  [{ draining: true }, "draining", "by an operator"],
  [{}, "up", ""],
])("an engine with %j is %s", (changes, health, note) => {
  const { engines, load } = sections() as { engines: object[]; load: unknown };
  const [row] = engineRows(readOverview({ engines: [{ ...engines[0], ...changes }], load }));
  expect([row?.health, row?.note]).toEqual([health, note]);
  expect(countHealthy(row ? [row] : []).healthy).toBe(health === "up" ? 1 : 0);
});

test("a row of an engine has its region, by which it is found, and how far it is", () => {
  const place = { region: "us-east-1", networkMs: 74 };
  const engine = (id: string, more: object) => ({ id, state: "up", read: [{ target: id }], ...more });
  const rows = engineRows(readOverview({ engines: [engine("a", place), engine("b", {})] }));
  expect(rows.map(({ region, networkMs }) => [region, networkMs])).toEqual([
    ["us-east-1", 74],
    [null, null],
  ]);
  const view = { by: "name", isDescending: false, query: "us-east" } as const;
  expect(viewedEngines(rows, view).map(({ key }) => key)).toEqual(["a"]);
});

test("where no engine tells, what was sent there counts; where nothing was, nothing is known", () => {
  const engine = (id: string, placed: number) => ({ id, state: "up", read: [{ target: id, held: 0, placed }] });
  const rows = engineRows(readOverview({ engines: [engine("a", 8), engine("b", 0)] }));
  expect(rows.map(({ blocks, source, share }) => [blocks, source, share])).toEqual([
    [8, "placements", 1],
    [0, "nothing", 0],
  ]);
  expect(engineRows(readOverview({ engines: [engine("a", 0)] }))[0]?.share).toBe(0);
});

// Symptom: an engine that was new, with 0 % of the blocks, looked faulty; one that was down looked as if its cache could be used.
test("an engine without requests and blocks is idle, and one that is down has no blocks and no share", () => {
  const engine = (id: string, more: object, target: object = {}) => ({
    ...{ id, state: "up", ...more },
    read: [{ target: id, ...target }],
  });
  const rows = engineRows(
    readOverview({
      engines: [
        engine("new", {}),
        engine("used", {}, { placed: 8 }),
        engine("running", {}, { running: 1 }),
        engine("draining", { draining: true }),
        engine("down", { state: "down" }, { held: 8, placed: 8 }),
      ],
    }),
  );
  expect(rows.filter(isIdle).map(({ key }) => key)).toEqual(["new"]);
  expect(rows.map(({ key, blocks, share }) => `${key} ${blocks} ${share}`)).toEqual([
    ...["new 0 0", "used 8 1", "running 0 0", "draining 0 0", "down 0 0"],
  ]);
});

test("times of a router whose clock is an hour ahead are those of the page; what has no time keeps none", () => {
  const aheadMs = 3_600_000;
  const more = { lost: [{ router: "r", sinceMs: aheadMs + 5 }], refused: [{ lastMs: aheadMs + 6 }] };
  const engines = [
    { id: "a", sinceMs: aheadMs + 1, oldestSinceMs: aheadMs + 2, unresponsiveSinceMs: aheadMs + 3 },
    { id: "b" },
  ];
  const status = { reload: { atMs: aheadMs + 4 } };
  const read = readOverview({ ...sections({ more }), engines, status });
  const { links, ...moved } = onPageClock(read, aheadMs);
  expect(moved.engines).toMatchObject([
    { sinceMs: 1, oldestSinceMs: 2, unresponsiveSinceMs: 3 },
    { sinceMs: 0, oldestSinceMs: null, unresponsiveSinceMs: null },
  ]);
  expect([moved.status.reload?.atMs, links.lost[0]?.sinceMs, links.refused[0]?.lastMs]).toEqual([4, 5, 6]);
  expect(onPageClock(readOverview(sections()), aheadMs).status.reload).toBeNull();
  expect(onPageClock(read, 0)).toBe(read);
});

test("queues of a class are added up over routers", () => {
  const one = [
    { name: "interactive", queued: 1, waited: 2, waitedMs: 100, shed: 0 },
    { name: "batch", queued: 0, waited: 0, waitedMs: 0, shed: 3 },
  ];
  const other = [{ name: "interactive", queued: 4, waited: 2, waitedMs: 300, shed: 1 }];
  expect(queueRows([one, other])).toEqual([
    { name: "interactive", queued: 5, shed: 1, waitMs: 100 },
    { name: "batch", queued: 0, shed: 3, waitMs: null },
  ]);
});

const followed = (router: string, isLive = true) => ({
  ...{ router, origin: `http://${router}:9090`, isLive, hasBeenLive: true, requestsPerS: 3, inFlight: 2 },
  ...{ status: readOverview(sections()).status, killCommand: "kill -9 1" },
});

test("routers: the one that is read, those that are followed, those that are only linked, those that are gone", () => {
  const { links } = readOverview(
    sections({
      links: [
        link("router-10"),
        link("router-2", { lagMs: 20 }),
        link("router-3", { state: "down", isLinked: false }),
        link("router-4", { isDraining: true }),
        link("router-5", { isLinked: false }),
      ],
    }),
  );
  const rows = routerRows(links, [followed("router-1"), followed("router-2"), followed("router-3", false)], "router-1");
  expect(rows.map(({ router, state, isSource, lagMs }) => [router, state, isSource, lagMs])).toEqual([
    ["router-1", "live", true, null],
    ["router-2", "live", false, 20],
    ["router-3", "gone", false, 5],
    ["router-4", "draining", false, 5],
    ["router-5", "silent", false, 5],
    ["router-10", "linked", false, 5],
  ]);
  expect(rows[2]).toMatchObject({ requestsPerS: null, killCommand: null, origin: "http://router-3:9090" });
  expect(rows[5]).toMatchObject({ requestsPerS: null, origin: "http://router-10:9090" });
});

/** "admission is off" stood there whenever there was nothing to show: before the first answer, and after the last router had died. */
test("queues: admission is off where a router says so, and nothing is said where none does", () => {
  const queue = { name: "batch", queued: 2, waited: 0, waitedMs: 0, shed: 0 };
  expect(queuesNote([])).toBe("");
  expect(queuesNote([readOverview({}).queues, null])).toBe("");
  expect(queuesNote([readOverview({ queues: [] }).queues])).toBe("admission is off");
  expect(queuesNote([null, [], [{ ...queue, queued: 0 }]])).toBe("queue empty");
  expect(queuesNote([[queue], null, [queue]])).toBe("4 queued");
});

/** What the last router had said of the others stood there, in green, when all were dead. */
test("when no router answers, none is alive: those that were followed are gone, of the others nothing is heard", () => {
  const { links } = readOverview(sections({ links: [link("router-2"), link("router-3")] }));
  const before = routerRows(links, [followed("router-1"), followed("router-2")], "router-1");
  expect([countAlive(before), before[0]?.hasOthers]).toEqual([3, true]);
  const rows = routerRows(links, [followed("router-1", false), followed("router-2", false)], undefined);
  expect(rows.map(({ state }) => state)).toEqual(["gone", "gone", "silent"]);
  expect([countAlive(rows), rows[0]?.hasOthers]).toEqual([0, false]);
});

test("a router that was followed and that nobody names any more is gone", () => {
  expect(routerRows(undefined, [followed("router-1", false)], undefined)).toMatchObject([
    { router: "router-1", state: "gone", isSource: false },
  ]);
});

const lost = { router: "router-3", address: "10.0.0.3:7946", sinceMs: 7 };
const refusal = {
  address: "10.0.0.9",
  by: "self",
  reason: "secret",
  detail: "the secrets differ",
  count: 3,
  lastMs: 9,
};

test("a router that was lost before the page was opened is gone, with since when and where; one that is back is not", () => {
  const { links } = readOverview(
    sections({ links: [link("router-2")], more: { lost: [lost, { router: "router-1" }] } }),
  );
  const rows = routerRows(links, [followed("router-1")], "router-1");
  expect(rows.map(({ router, state, lost: since }) => [router, state, since])).toEqual([
    ["router-1", "live", null],
    ["router-2", "linked", null],
    ["router-3", "gone", lost],
  ]);
});

test("refused routers and releases", () => {
  const different = link("router-2", { version: "0.2.0", settings: "ff", differs: ["version", "policy"] });
  const { links } = readOverview(
    sections({ links: [different], more: { version: "0.1.0", settings: "aa", lost: [lost], refused: [refusal, {}] } }),
  );
  expect(links.refused[0]).toMatchObject({ address: "10.0.0.9", isByUs: true, reason: "secret", count: 3 });
  const rows = routerRows(links, [followed("router-1")], "router-1");
  expect(rows.map(({ version, settings, differs }) => [version, settings, differs])).toEqual([
    ["0.1.0", "aa", []],
    ["0.2.0", "ff", ["version", "policy"]],
    [null, null, []],
  ]);
});

/** "gone" stood beside a router that had not answered yet, and "connecting" above it. */
test("a router that has not answered yet is connecting, one that drains says so itself, one that is not ready says why", () => {
  const { status } = readOverview({ status: { ready: false, reasons: ["the router is draining"], draining: true } });
  const slow = { ...followed("router-1", false), hasBeenLive: false };
  expect(routerRows(undefined, [slow], undefined)[0]?.state).toBe("connecting");
  expect(countAlive(routerRows(undefined, [slow], undefined))).toBe(0);
  const rows = routerRows(undefined, [{ ...followed("router-2"), status }, followed("router-10")], "router-2");
  expect(rows.map(({ router, number, state, reasons }) => [router, number, state, reasons])).toEqual([
    ["router-2", 1, "draining", ["the router is draining"]],
    ["router-10", 2, "live", []],
  ]);
});

test("a router of an earlier version counts as ready; the outcome of a reload is read", () => {
  expect(readOverview({}).status).toEqual({ ready: true, reasons: [], draining: false, reload: null });
  const reload = {
    atMs: 5,
    error: { code: "config_invalid", message: "Duplicate key" },
    applied: [],
    needsRestart: ["x"],
  };
  expect(readOverview({ status: { reload } }).status.reload).toEqual({
    ...{ atMs: 5, error: "Duplicate key", needsRestart: ["x"] },
  });
});
