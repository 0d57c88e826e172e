import { expect, test } from "vitest";
import type { EventLine } from "../src/model/events.ts";
import { type FleetFacts, findingsOf, refusalText } from "../src/model/findings.ts";
import { type RefusedLink, readOverview } from "../src/model/overview.ts";
import { type EngineRow, engineRows, type RouterRow, routerRows } from "../src/model/rows.ts";
import { sections } from "./fixtures.ts";

const { status } = readOverview(sections());
const [like] = engineRows(readOverview(sections()));
const engine = (key: string, changes: Partial<EngineRow> = {}): EngineRow => ({
  ...{ ...like!, key, engine: key },
  ...changes,
});
const [own] = routerRows(readOverview(sections()).links, [], "router-1");
const router = (name: string, changes: Partial<RouterRow> = {}): RouterRow => ({
  ...{ ...own!, router: name, state: "live" },
  ...changes,
});
const quiet: FleetFacts = {
  ...{ isLive: true, hasBeenLive: true, silentSinceMs: undefined, moved: undefined, status },
  ...{ refused: [], waiting: 0, rejecting: [], events: [] },
  engines: [engine("gpu-1"), engine("gpu-2"), engine("gpu-3"), engine("gpu-4")],
  routers: [router("router-1"), router("router-2")],
  recent: { requests: 340, refused: 0, limited: 0, failed: 0, cut: 0, met: 340, missed: 0 },
  nowMs: 1_000_000,
};
/** What a rule says when this is so. */
const said = (name: string, changes: Partial<FleetFacts>): readonly string[] => {
  const found = findingsOf({ ...quiet, ...changes }).find(({ rule }) => rule === name);
  return found ? [found.level, found.sentence, found.next] : [];
};
const down = { health: "down", note: "3 failed probes, last: unreachable" } as const;
const engines = (...rows: readonly EngineRow[]): Partial<FleetFacts> => ({ engines: rows });
const refusal = (changes: Partial<RefusedLink>): RefusedLink => ({
  ...{ address: "10.0.0.9", isByUs: true, claimed: null, reason: "secret", detail: "?", count: 1, lastMs: 999_000 },
  ...changes,
});

test("nothing is wrong: one quiet line", () => {
  const alone = (changes: Partial<FleetFacts>) => {
    const found = findingsOf({ ...quiet, ...changes });
    expect(found).toMatchObject([{ rule: "quiet", level: "quiet", next: "" }]);
    return found[0]?.sentence;
  };
  expect(alone({})).toBe("Every request of the last minute was answered; 4 engines and 2 routers up.");
  expect(alone({ ...engines(engine("a")), routers: [router("r")], recent: { ...quiet.recent, requests: 0 } })).toBe(
    "No request in the last minute; 1 engine and 1 router up.",
  );
  expect(alone({ isLive: false, hasBeenLive: false, engines: [] })).toBe("Connecting …");
});

test("no_router: nobody answers any more, and nothing else is said of what was", () => {
  const gone = { isLive: false, ...engines(engine("a", down)), routers: [router("r", { state: "gone" })] };
  expect(findingsOf({ ...quiet, ...gone })).toMatchObject([{ rule: "no_router", level: "alarm" }]);
  expect(said("no_router", gone)[1]).toMatch(/^No router answers\. The page shows the last known state/);
  // Symptom: the last state looked like the present one. Mechanism: nothing said how old it was.
  expect(said("no_router", { ...gone, silentSinceMs: 966_000 })[1]).toMatch(
    /^No router answers since \d\d:\d\d:\d\d\. The page shows the last known state and keeps trying\.$/,
  );
});

test("no_engine", () => {
  expect(said("no_engine", engines())).toEqual([
    "alarm",
    "No engine is configured or discovered: requests get 503.",
    expect.stringContaining("`espalier engines add URL`"),
  ]);
});

test.each([
  [[down, down], "2 down", /^Restart the engines, and read their logs\.$/],
  [[{ health: "unreachable" }, { health: "unreachable" }, down], "2 unreachable, 1 down", /^Check the address/],
  [[{ health: "draining" }], "1 draining", /undrain ID`/],
  [[{ health: "asleep" }], "1 asleep", /^Wake them up/],
  [[{ health: "paused" }], "1 paused", /^The RL framework that paused them resumes them/],
  [[{ health: "starting" }], "1 starting", /^Wait for the first health check/],
  [[{ health: "open" }], "1 with an open circuit", /^Read the engine's log/],
] as const)("no_usable_engine: %j", (changes, states, next) => {
  const found = said("no_usable_engine", engines(...changes.map((each, at) => engine(`gpu-${at}`, each))));
  expect(found).toEqual(["alarm", `No engine accepts requests: ${states}.`, expect.stringMatching(next)]);
});

test("model_without_engine: a model that only engines which are down serve", () => {
  const rows = [engine("a", { models: ["big", "small"] }), engine("b", { ...down, models: ["small", "other"] })];
  expect(said("model_without_engine", engines(...rows))).toEqual([
    "alarm",
    "No running engine serves other.",
    expect.stringMatching(/^Restart the engine/),
  ]);
  expect(said("model_without_engine", engines(engine("a"), engine("b", down)))).toEqual([]);
});

test.each([
  [{ failed: 12 }, "alarm", "12 of 340 requests failed in the last minute."],
  [{ failed: 3, cut: 1 }, "alarm", "3 of 340 requests failed and 1 was cut off in the last minute."],
  [{ cut: 2 }, "warn", "2 of 340 requests were cut off in the last minute."],
] as const)("failed_requests: %j", (recent, level, sentence) => {
  const changes = { recent: { ...quiet.recent, ...recent } };
  expect(said("failed_requests", changes)).toEqual([level, sentence, expect.stringMatching(/^Explain one with/)]);
  const broken = { ...changes, ...engines(engine("a"), engine("gpu-9", { health: "open" })) };
  expect(said("failed_requests", broken)[2]).toBe("Start with gpu-9.");
});

test("reads_elsewhere: for a minute after the page has moved, and then the router is lost", () => {
  const moved = { from: "router-1", to: "router-2", atMs: 992_000 };
  const routers = [router("router-1", { state: "gone" }), router("router-2")];
  expect(said("reads_elsewhere", { moved, routers })).toEqual([
    "warn",
    "router-1 is gone: reading from router-2.",
    "Restart router-1. The other routers serve its clients.",
  ]);
  // Symptom: a banner, a row and an event of one lost router had three times. Mechanism: the banner's was that of the page.
  const lost = { router: "router-1", address: null, sinceMs: 990_000 };
  const listed = [router("router-1", { state: "gone", lost }), router("router-2")];
  expect(said("reads_elsewhere", { moved, routers: listed })[1]).toMatch(
    /^router-1 is gone since \d\d:\d\d:\d\d: reading from router-2\.$/,
  );
  expect(said("lost_routers", { moved, routers })).toEqual([]);
  // Symptom: a router that had been too busy to answer was called gone beside a row that said "ready".
  expect(said("reads_elsewhere", { moved, routers: [router("router-1"), router("router-2")] })).toEqual([]);
  const later = { moved, routers, nowMs: 1_060_000 };
  expect(said("reads_elsewhere", later)).toEqual([]);
  expect(said("lost_routers", later)[1]).toBe("router-1 is gone.");
});

test("engines_down: which one and why, or how many and why most of them", () => {
  const [one, other] = [engine("gpu-7", down), engine("gpu-8", { health: "unreachable", note: "refused" })];
  expect(said("engines_down", { engines: [...quiet.engines, one] })).toEqual([
    "warn",
    "gpu-7 is down: 3 failed probes, last: unreachable.",
    "Restart the engine, and read its log. Requests go to the others.",
  ]);
  const half = [engine("gpu-1"), engine("gpu-2"), one, { ...one, key: "gpu-9" }, other];
  expect(said("engines_down", { engines: half }).slice(0, 2)).toEqual([
    "alarm",
    "3 of 5 engines are down: 3 failed probes, last: unreachable (2 of them).",
  ]);
});

test("circuit_open", () => {
  const open = engine("gpu-7", { health: "open", note: "5 of 10 requests failed" });
  expect(said("circuit_open", { engines: [...quiet.engines, open] }).slice(0, 2)).toEqual([
    "warn",
    "gpu-7 is failing requests: 5 of 10 requests failed.",
  ]);
});

test("limited_requests: another thing than failed ones, and by whom", () => {
  const recent = { ...quiet.recent, refused: 48, limited: 48 };
  for (const other of ["failed_requests", "unavailable_requests"]) expect(said(other, { recent })).toEqual([]);
  expect(said("limited_requests", { recent })).toEqual([
    "warn",
    "48 of 340 requests got 429 in the last minute: a limit was reached.",
    expect.stringMatching(/^No queue rejects requests now: the router's `limits` or an engine does/),
  ]);
  expect(said("limited_requests", { recent, rejecting: ["batch"] })[2]).toBe(
    "The queue of batch rejects requests: add engines, or reduce load.",
  );
});

// Symptom: one figure for 429 and 503, and advice on limits where no engine was up.
test("unavailable_requests: those that no engine took, beside those at a limit", () => {
  const recent = { ...quiet.recent, refused: 48, limited: 13 };
  expect(said("unavailable_requests", { recent })).toEqual([
    "warn",
    "35 of 340 requests got 503 in the last minute: no engine took them.",
    expect.stringMatching(/^All engines are up: the error code/),
  ]);
  expect(said("limited_requests", { recent })[1]).toMatch(/^13 of 340 requests got 429/);
  const some = (...names: readonly string[]) =>
    engines(engine("gpu-1"), ...names.map((name) => engine(name, { health: "draining" })));
  expect(said("unavailable_requests", { recent, ...some("gpu-9") })[2]).toBe("Start with gpu-9.");
  expect(said("unavailable_requests", { recent, ...some("a", "b", "c") })[2]).toBe(
    "Start with 3 engines that accept no requests.",
  );
});

const line = (kind: string, ...subjects: readonly string[]): EventLine => ({
  ...{ key: `${kind} ${subjects.join()}`, atMs: 0, kind, subjects, level: "bad", text: "", more: "" },
});

test("a finding leads to its row, or to the panel with all of them, and to the newest event about it", () => {
  const links = (name: string, changes: Partial<FleetFacts>) =>
    findingsOf({ ...quiet, ...changes })
      .find(({ rule }) => rule === name)
      ?.links.map(({ text, href }) => `${text}: ${href}`);
  const events = [line("engine_up", "gpu-7"), line("engine_down", "gpu-6", "gpu-7"), line("engine_down", "gpu-7")];
  const one = [...quiet.engines, engine("gpu-7:1", { ...down, engine: "gpu-7" })];
  expect(links("engines_down", { engines: one, events })).toEqual([
    "Show engine: #row/engine/gpu-7%3A1",
    "Show event: #row/event/engine_down%20gpu-6%2Cgpu-7",
  ]);
  expect(links("engines_down", { engines: [...one, engine("gpu-8", down)] })).toEqual(["Show engines: #panel-engines"]);
  const routers = [router("router-1"), router("router-2", { state: "gone" })];
  expect(links("lost_routers", { routers, events: [line("router_lost", "router-2")] })).toEqual([
    "Show router: #row/router/router-2",
    "Show event: #row/event/router_lost%20router-2",
  ]);
  const both = [router("router-2", { state: "silent" }), router("router-3", { state: "gone" })];
  expect(links("lost_routers", { routers: both })).toEqual(["Show routers: #panel-routers"]);
  expect(links("waiting_requests", { waiting: 3 })).toEqual(["Show queues: #panel-queues"]);
  expect(links("quiet", {})).toEqual([]);
});

test("missed_objectives: answers that came too late or too slowly, and only with enough of them", () => {
  const missed = (changes: Partial<FleetFacts["recent"]>) =>
    said("missed_objectives", { recent: { ...quiet.recent, ...changes } });
  expect(missed({ met: 306, missed: 34 })).toEqual([]);
  expect(missed({ met: 305, missed: 35 })).toEqual([
    "note",
    "35 of 340 requests missed their objectives in the last minute: late first tokens or slow output.",
    expect.stringContaining("espalier_slo_requests_total"),
  ]);
  expect(missed({ met: 240, missed: 100, refused: 80, failed: 10, cut: 1 })).toEqual([]);
  expect(missed({ met: 0, missed: 19 })).toEqual([]);
  expect(missed({ met: 0, missed: 20 })).toHaveLength(3);
});

const silent = { unresponsiveSinceMs: 910_000, oldestSinceMs: 905_000 };
const slow = { slow: { measure: "ttft", ms: 4_623, othersMs: 640 } };

test("unresponsive_engines: named, since when, and what to do; one that is down is no news", () => {
  const [level, sentence, next] = said("unresponsive_engines", engines(engine("gpu-1"), engine("gpu-2", silent)));
  expect(level).toBe("warn");
  expect(sentence).toMatch(
    /^gpu-2 is unresponsive: requests wait there, and nothing has come since \d\d:\d\d:\d\d \(90 s ago\), although health checks succeed\.$/,
  );
  expect(next).toContain("`espalier engines drain gpu-2`");
  const two = said("unresponsive_engines", engines(engine("a", silent), engine("b", silent), engine("c")));
  expect(two[1]).toMatch(/^2 of 3 engines are unresponsive: /);
  expect(said("unresponsive_engines", engines(engine("a", { ...silent, ...down }), engine("b")))).toEqual([]);
  // Its circuit opens, and that is no other fault.
  const open = engines(engine("gpu-1"), engine("gpu-2", { ...silent, health: "open" }));
  expect(said("unresponsive_engines", open)[1]).toMatch(/^gpu-2 is unresponsive: /);
  expect(said("circuit_open", open)).toEqual([]);
});

test("slow_engines: beside what the others take", () => {
  expect(said("slow_engines", engines(engine("gpu-1"), engine("gpu-2", slow)))).toEqual([
    "warn",
    "gpu-2 is slow: first tokens after 4.6 s in the last minute, 640 ms at the others.",
    expect.stringContaining("`espalier engines drain gpu-2`"),
  ]);
  const tpot = { slow: { measure: "tpot", ms: 210, othersMs: 30 } };
  expect(said("slow_engines", engines(engine("gpu-1"), engine("gpu-2", tpot)))[1]).toBe(
    "gpu-2 is slow: 210 ms per output token in the last minute, 30 ms at the others.",
  );
  expect(said("slow_engines", engines(engine("gpu-1"), engine("gpu-2", { ...slow, ...silent })))).toEqual([]);
});

// The advice was to add engines, whatever the cause.
test("missed_objectives: an engine that is slow or silent is looked at first", () => {
  const recent = { ...quiet.recent, met: 240, missed: 100 };
  const next = (changes: Partial<EngineRow>) =>
    said("missed_objectives", { recent, ...engines(engine("gpu-1"), engine("gpu-2", changes)) })[2];
  expect(next(slow)).toBe("Start with gpu-2.");
  expect(next(silent)).toBe("Start with gpu-2.");
  expect(next({})).toContain("Add engines");
});

test("lost_routers: since when, and those that are silent", () => {
  const lost = { router: "router-3", address: null, sinceMs: 5_000 };
  expect(said("lost_routers", { routers: [router("router-3", { state: "gone", lost })] })[1]).toMatch(
    /^router-3 is gone since \d\d:\d\d:\d\d\.$/,
  );
  const routers = ["router-3", "router-4"].map((name) => router(name, { state: "silent" }));
  expect(said("lost_routers", { routers }).slice(1)).toEqual([
    "router-3 and router-4 are gone.",
    expect.stringMatching(/^Restart them, or check the network/),
  ]);
});

test("not_ready: why, unless engines are the reason", () => {
  const routers = [router("router-1"), router("router-2", { reasons: ["the router is warming up"] })];
  expect(said("not_ready", { routers }).slice(0, 2)).toEqual([
    "warn",
    "router-2 is not ready: the router is warming up.",
  ]);
  expect(said("not_ready", { routers, ...engines(engine("a", down)) })).toEqual([]);
});

test("refused_routers: as long as they try, with what to do about each reason", () => {
  expect(said("refused_routers", { refused: [refusal({})] })).toEqual([
    "warn",
    "A router at 10.0.0.9 is refused: its mesh secret differs.",
    "Give all routers the same `mesh.secret`.",
  ]);
  expect(
    said("refused_routers", { refused: [refusal({ reason: "new-reason", detail: "Do this." })] }).slice(1),
  ).toEqual(["A router at 10.0.0.9 is refused: new reason.", "Do this."]);
  expect(said("refused_routers", { refused: [refusal({})], nowMs: 1_200_000 })).toEqual([]);
  expect(refusalText("too-many-peers")).toBe("the mesh is full");
});

test.each([
  [["version"], "router-2 differs in version.", "Finish the upgrade."],
  [["version", "policy"], "router-2 differs in version and policy.", /^Give all routers the same configuration file/],
] as const)("differing_routers: %j", (differs, sentence, next) => {
  expect(said("differing_routers", { routers: [router("router-1"), router("router-2", { differs })] })).toEqual([
    "warn",
    sentence,
    expect.stringMatching(next),
  ]);
});

test("reload_failed and restart_needed", () => {
  const reload = { atMs: 5_000, error: "Duplicate key", needsRestart: [] };
  const failed = said("reload_failed", { status: { ...status, reload } });
  expect(failed[1]).toMatch(/^The reload at .* failed; the previous configuration stays active: Duplicate key$/);
  expect(failed[2]).toContain("espalier check-config");
  const waiting = { ...status, reload: { ...reload, error: null, needsRestart: ["mesh.port"] } };
  expect(said("reload_failed", { status: waiting })).toEqual([]);
  expect(said("restart_needed", { status: waiting }).slice(0, 2)).toEqual(["note", "mesh.port waits for a restart."]);
});

test("draining_routers and idle_engines", () => {
  const routers = [router("router-1"), router("router-2", { state: "draining" })];
  expect(said("draining_routers", { routers }).slice(0, 2)).toEqual(["note", "router-2 is draining."]);
  const idle = [...quiet.engines, engine("gpu-7", { health: "draining" }), engine("gpu-8", { health: "asleep" })];
  expect(said("idle_engines", { engines: idle }).slice(0, 2)).toEqual([
    "note",
    "gpu-7 and gpu-8 accept no requests: 1 draining, 1 asleep.",
  ]);
});

test("starting_engines: those whose health checks fail", () => {
  const starting = (note: string) => ({
    engines: [...quiet.engines, engine("gpu-7", { health: "starting", note })],
  });
  expect(said("starting_engines", starting("12 failed probes")).slice(0, 2)).toEqual([
    "note",
    "gpu-7 is not up yet: 12 failed probes.",
  ]);
  expect(said("starting_engines", starting("not probed yet"))).toEqual([]);
});

test("waiting_requests", () => {
  expect(said("waiting_requests", { waiting: 0.4 })).toEqual([]);
  expect(said("waiting_requests", { waiting: 38.2 }).slice(0, 2)).toEqual(["note", "38 requests wait for an engine."]);
});

test("the worst comes first, whatever the order of the rules", () => {
  const all = findingsOf({
    ...quiet,
    engines: [engine("a"), engine("b", down), engine("c", { health: "draining" }), engine("d"), engine("e")],
    recent: { ...quiet.recent, failed: 100 },
    routers: [router("router-1"), router("router-2", { state: "draining" })],
  });
  expect(all.map(({ rule, level }) => `${level} ${rule}`)).toEqual([
    ...["alarm failed_requests", "warn engines_down", "note draining_routers", "note idle_engines"],
  ]);
});
