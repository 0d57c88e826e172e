import { expect, test } from "vitest";
import { addEvents, eventLines, type FleetEvent, maxEvents } from "../src/model/events.ts";

const event = (kind: string, subject: string, atMs = 0, detail = ""): FleetEvent => ({ atMs, kind, subject, detail });
const texts = (...routers: readonly (readonly FleetEvent[])[]) => eventLines(routers).map(({ text }) => text);

test("events are told newest first, with their reasons", () => {
  const lines = eventLines([
    [
      event("engine_down", "gpu-1", 1_000, "3 failed probes"),
      event("feed_taken_over", "gpu-2", 30_000, "router-1 → router-2"),
      event("reload_failed", "router-1", 60_000, "Duplicate key"),
      event("from_a_later_version", "gpu-1", 90_000),
    ],
  ]);
  expect(lines.map(({ level, text }) => `${level}: ${text}`)).toEqual([
    "plain: gpu-1 from_a_later_version",
    "bad: router-1 could not reload its configuration (Duplicate key)",
    "plain: gpu-2 KV event feed taken over (router-1 → router-2)",
    "bad: gpu-1 is down (3 failed probes)",
  ]);
});

test("what happens at once stands in one line, what happens later in another", () => {
  const lost = ["a", "b", "c", "d"].map((name, at) => event("engine_down", name, at * 1_000, `reason ${at}`));
  const [later, together] = eventLines([[...lost, event("engine_down", "e", 9_000)]]);
  expect([later?.text, together?.text]).toEqual(["e is down", "4 engines are down: a, b, c and 1 more"]);
  expect(together?.more).toBe("a: reason 0\nb: reason 1\nc: reason 2\nd: reason 3");
});

test("what several routers saw is told once, in the words of the source; what only another one saw is told too", () => {
  const source = [event("engine_down", "a", 5_000, "refused"), event("router_joined", "router-2", 60_000)];
  const other = [
    event("engine_down", "a", 3_000, "timeout"),
    event("engine_unreachable", "b", 4_000),
    event("router_started", "router-2", 59_000),
    event("engine_down", "a", 40_000, "again"),
  ];
  expect(texts(source, other)).toEqual([
    "router-2 joined",
    "a is down (again)",
    "a is down (refused)",
    "b cannot be reached",
  ]);
});

test("as many events are kept as a router has, one more pushes out the oldest, and none twice", () => {
  const many = Array.from({ length: maxEvents }, (_, at) => event("engine_up", `e${at}`, 1_000 + at));
  const known = addEvents([], many, 0);
  expect(addEvents(known, many.slice(-5), 0)).toHaveLength(maxEvents);
  const more = addEvents(known, [event("engine_up", "late", 9_000)], 0);
  expect([more.length, more[0]?.subject, more.at(-1)?.subject]).toEqual([maxEvents, "e1", "late"]);
  expect(addEvents(known, [], 1_500)).toHaveLength(maxEvents - 501);
});
