import { asRouterId } from "@espalier/core";
import type { Note } from "@espalier/shared-tree";
import { createRecordingLogger, createSeriesMeter, createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createFleetWatch,
  maxReleases,
  maxSections,
  type RouterRelease,
  readRelease,
  settingsDigest,
  writeRelease,
} from "../../src/mesh/fleet-watch.ts";

const release = (version: string, settings: Readonly<Record<string, string>>): RouterRelease => ({
  version,
  settings: new Map(Object.entries(settings)),
});
const own = release("1.0.0", { policy: "aa", prefix: "bb" });

async function start() {
  const time = createVirtualTime();
  const [logger, meter] = [createRecordingLogger(), createSeriesMeter()];
  const posted: Uint8Array[] = [];
  const listeners = new Set<(note: Note) => void>();
  const states = new Map<string, "alive" | "down">();
  const watch = createFleetWatch({
    ...{ ...time, logger, meter, release: own },
    notes: {
      post: (_, bytes) => posted.push(bytes) > 0,
      onNote(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    },
    members: () => [...states].map(([router, state]) => ({ router, state, address: `${router}:1` })),
  });
  await watch.start();
  const hear = (router: string, bytes: Uint8Array, key = "release"): void => {
    const note = { origin: { router: asRouterId(router), epoch: 1 }, key, bytes, ageMs: 0 };
    for (const listener of listeners) listener(note);
  };
  const join = (router: string, other: RouterRelease): void => {
    states.set(router, "alive");
    hear(router, writeRelease(other));
    time.advance(1_000);
  };
  const logged = (level: string) => logger.lines.filter((line) => line.level === level).map(({ fields }) => fields);
  const gauges = () => ["version", "settings"].map((what) => meter.value("espalier_mesh_mismatched_routers", what));
  return { time, watch, posted, states, hear, join, logged, gauges, listeners };
}

test("routers with the same release do not differ, and one that says nothing is not accused", async () => {
  const { watch, join, logged, gauges, states, time } = await start();
  join("r2", release("1.0.0", { prefix: "bb", policy: "aa" }));
  states.set("r3", "alive");
  time.advance(1_000);
  expect(watch.releaseOf("r2")).toEqual({ version: "1.0.0", settings: settingsDigest(own.settings), differs: [] });
  expect(watch.releaseOf("r3")).toEqual({ version: null, settings: null, differs: [] });
  expect([logged("warn"), gauges()]).toEqual([[], [0, 0]]);
});

test("a difference is told once, counted while it lasts, and its end is told", async () => {
  const { watch, join, logged, gauges, states, time } = await start();
  join("r2", release("1.1.0", { policy: "aa", prefix: "other" }));
  time.advance(60_000);
  expect(watch.releaseOf("r2")).toMatchObject({ version: "1.1.0", differs: ["version", "prefix"] });
  expect(logged("warn")).toEqual([{ router: "r2", version: "1.1.0", here: "1.0.0", in: ["version", "prefix"] }]);
  expect(gauges()).toEqual([1, 1]);
  join("r2", own);
  expect([logged("warn").length, logged("info").length, gauges()]).toEqual([1, 1, [0, 0]]);
  join("r2", release("1.0.0", { policy: "other", prefix: "bb" }));
  expect([logged("warn").length, gauges()]).toEqual([2, [0, 1]]);
  states.set("r2", "down");
  time.advance(1_000);
  expect([gauges(), watch.lost()]).toMatchObject([[0, 0], [{ router: "r2", address: "r2:1" }]]);
});

test("a section that only one of them knows is no difference", async () => {
  const { watch, join } = await start();
  join("r2", release("1.0.0", { policy: "aa", prefix: "bb", later: "x" }));
  join("r3", release("1.0.0", { policy: "aa" }));
  expect(["r2", "r3"].flatMap((router) => watch.releaseOf(router).differs)).toEqual([]);
});

test("this router's own release is told at the start and when it has changed", async () => {
  const { watch, posted, join } = await start();
  join("r2", own);
  watch.setSettings(new Map(own.settings));
  expect(posted.map(readRelease)).toEqual([own]);
  const changed = release("1.0.0", { policy: "zz", prefix: "bb" });
  watch.setSettings(changed.settings);
  expect(posted.map(readRelease)).toEqual([own, changed]);
  expect(watch.releaseOf("r2").differs).toEqual(["policy"]);
});

test("a note that cannot be read says nothing, nor does one about something else; after the end nothing is heard", async () => {
  const { watch, hear, join, listeners } = await start();
  join("r2", own);
  hear("r2", writeRelease(release("2.0.0", {})), "admin");
  expect(watch.releaseOf("r2").version).toBe("1.0.0");
  hear("r2", Uint8Array.of(2, 1, 65));
  expect(watch.releaseOf("r2").version).toBeNull();
  await watch.stop();
  expect(listeners.size).toBe(0);
});

test("releases of 256 routers are kept, and a note has 64 sections; one more is left out, and the next is taken", async () => {
  const { watch, hear } = await start();
  for (let at = 0; at <= maxReleases; at++) hear(`r${at}`, writeRelease(own));
  expect([0, 1, maxReleases].map((at) => watch.releaseOf(`r${at}`).version)).toEqual([null, "1.0.0", "1.0.0"]);
  const sections = (count: number) =>
    release("1.0.0", Object.fromEntries(Array.from({ length: count }, (_, at) => [`s${at}`, "x"])));
  expect(readRelease(writeRelease(sections(maxSections)))?.settings.size).toBe(maxSections);
  expect(readRelease(writeRelease(sections(maxSections + 1)))).toBeUndefined();
  hear("r1", writeRelease(sections(maxSections + 1)));
  hear("r1", writeRelease(sections(2)));
  expect(watch.releaseOf("r1").version).toBe("1.0.0");
});

test("what ends in terminals and logs has nothing that could disturb them", () => {
  const read = readRelease(writeRelease(release("1\u001b[2J", { "a\nb": "x" })));
  expect([read?.version, [...(read?.settings.keys() ?? [])]]).toEqual(["1?[2J", ["a?b"]]);
});
