import { asEngineId } from "@espalier/core";
import type { EngineRecord, FleetChange } from "@espalier/engines";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createLocalTable } from "../../src/lifecycle/operator-engines.ts";
import { createEngineControl } from "../../src/rollouts/engine-control.ts";

const id = asEngineId("e");

/** Controls over one fleet with one engine. */
function rig(table = createLocalTable()) {
  const time = createVirtualTime();
  const events: string[] = [];
  let isPaused = false;
  let tell: (change: FleetChange, engine: EngineRecord) => void = () => {};
  const engine = { id } as EngineRecord;
  const control = createEngineControl({
    table,
    clock: time.clock,
    fleet: {
      engines: [engine],
      engine: () => engine,
      setPaused(_, paused) {
        if (paused !== isPaused) events.push(paused ? "paused" : "resumed");
        isPaused = paused;
      },
      voidCaches: () => void events.push("void"),
      onChange(listener) {
        tell = listener;
        return () => {};
      },
    },
  });
  return { ...{ time, table, control, events }, happens: (change: FleetChange) => tell(change, engine) };
}

const none: readonly string[] = [];

test("an engine is out of use from the beginning of a pause to the end of a resume, or to the failure of the pause", () => {
  const { control, events } = rig();
  control.begin(id, { pauses: true, tags: none });
  expect(events).toEqual(["paused"]);
  control.end(id, { pauses: true, tags: none }, false);
  // A second pause that fails leaves the first one.
  control.begin(id, { pauses: true, tags: none })();
  control.begin(id, { pauses: false, tags: none });
  expect(events).toEqual(["paused"]);
  control.end(id, { pauses: false, tags: none }, false);
  control.begin(id, { pauses: true, tags: none })();
  expect(events).toEqual(["paused", "resumed", "paused", "resumed"]);
});

test("a resume does not bring released memory back, nor the reverse", () => {
  const { control, events } = rig();
  const release = (tags: readonly string[]) => control.begin(id, { releases: ["weights", "kv_cache"], tags });
  const bring = (tags: readonly string[]) => control.end(id, { releases: false, tags }, false);
  control.begin(id, { pauses: true, tags: none });
  release(none);
  control.end(id, { pauses: false, tags: none }, false);
  bring(["weights", "unknown"]);
  expect(events).toEqual(["paused"]);
  bring(["kv_cache"]);
  expect(events).toEqual(["paused", "resumed"]);
  release(["scheduling"]);
  release(["unknown"]);
  bring(none);
  expect(events).toEqual(["paused", "resumed", "paused", "resumed"]);
});

test("a process that was restarted, or an engine that was removed, is not paused", () => {
  const { control, events, happens, table } = rig();
  control.begin(id, { pauses: true, tags: none });
  happens("restarted");
  expect(events).toEqual(["paused", "resumed"]);
  control.begin(id, { pauses: true, tags: none });
  control.forget(id);
  expect(events).toEqual(["paused", "resumed", "paused", "resumed"]);
  expect(table.entries()).toEqual([]);
});

test("each update voids caches once at every router; one that joins later keeps what it knows", () => {
  const table = createLocalTable();
  const [one, other] = [rig(table), rig(table)];
  for (let update = 0; update < 3; update++) one.control.end(id, { tags: none }, true);
  one.control.end(id, { tags: none }, false);
  expect([one.events, other.events]).toEqual([Array(3).fill("void"), Array(3).fill("void")]);
  const joined = rig(table);
  joined.time.advance(60_100);
  joined.happens("added");
  expect(joined.events).toEqual([]);
  joined.control.end(id, { tags: none }, true);
  expect(joined.events).toEqual(["void"]);
});

test("rows of another version of the router are read as far as they are understood", () => {
  const { table, events, control } = rig();
  table.put(id, { isPaused: "yes", released: ["weights", 7, "moon"], voidedMs: "now" });
  table.put("another", { isPaused: true });
  expect(events).toEqual(["paused"]);
  control.end(id, { releases: false, tags: none }, false);
  expect(events).toEqual(["paused", "resumed"]);
});
