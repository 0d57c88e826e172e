import { asEngineId, createSeededRandom, type EngineSpec, EspalierError } from "@espalier/core";
import { type EngineSource, mergeSources, type SourceObserver } from "@espalier/engines";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { parseEnginesFile } from "../../src/config/index.ts";
import {
  createLocalTable,
  createOperatorEngines,
  createSharedTable,
  maxOperatorEngines,
  type OperatorTable,
} from "../../src/lifecycle/operator-engines.ts";
import { createLoneReplica } from "../mesh/mesh-rig.ts";

const specs = (...names: readonly string[]): readonly EngineSpec[] =>
  parseEnginesFile(JSON.stringify(names.map((name) => ({ url: `http://${name}:1`, id: name }))), "test");
const id = asEngineId;
const codeOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    if (error instanceof EspalierError) return error.code;
    throw error;
  }
  return "done";
};

/** A list that the test replaces. */
function createManualList(first: readonly EngineSpec[]) {
  let observer: SourceObserver | undefined;
  const source: EngineSource = {
    name: "list",
    async start(given) {
      observer = given;
      given.onList(first);
    },
    async stop() {},
  };
  return { source, replace: (specs: readonly EngineSpec[]) => observer?.onList(specs) };
}

/** Operators beside a configured list, as a router has them. */
async function start(table: OperatorTable, ...configured: readonly string[]) {
  const logger = createRecordingLogger();
  const list = createManualList(specs(...configured));
  let listed: readonly EngineSpec[] = [];
  const operators = createOperatorEngines({ table, listed: () => listed, logger });
  const lists: string[] = [];
  const merged = mergeSources([list.source, operators.source], {
    onList(found) {
      listed = found;
      const present = operators.present(listed);
      lists.push(present.map((spec) => spec.id).join(" "));
    },
    onError: () => {},
    onConflict: () => {},
    onRecovered: () => {},
    onFollowed: () => {},
    onLeft: () => {},
  });
  await merged.start();
  return { operators, list, logger, stop: () => merged.stop(), now: () => lists.at(-1) };
}

const tables: readonly (readonly [string, () => OperatorTable])[] = [
  ["of a router by itself", createLocalTable],
  ["in the registry", () => createSharedTable(createLoneReplica(createVirtualTime()).replica.registry, "operator")],
];

describe.each(tables)("engines that operators add and remove, %s", (_, createTable) => {
  test("join the configured ones, and leave", async () => {
    const { operators, now } = await start(createTable(), "a", "b");
    expect(operators.add({ url: "http://C:8000/", models: ["m"], weight: 2 })).toBe("c:8000");
    expect(now()).toBe("a b c:8000");
    operators.remove(id("c:8000"));
    expect(now()).toBe("a b");
  });

  /*
   * A JSON string is a shorthand in the configuration. It was checked as one and then stored spread into characters, an entry
   * that no router could read.
   */
  test("what is no object is refused and stored nowhere, and an object is added afterwards", async () => {
    const table = createTable();
    const { operators, now } = await start(table, "a");
    for (const written of ["http://c:1", ["http://c:1"], [{ url: "http://c:1" }], null, 7, true]) {
      expect(
        codeOf(() => operators.add(written)),
        JSON.stringify(written),
      ).toBe("invalid_value");
    }
    expect(table.entries()).toEqual([]);
    operators.add({ url: "http://c:1" });
    expect(now()).toBe("a c:1");
  });

  test("a configured one that was removed stays away, also when the configuration is read again", async () => {
    const { operators, list, now } = await start(createTable(), "a", "b");
    operators.remove(id("a"));
    expect(now()).toBe("b");
    list.replace(specs("a", "b", "c"));
    expect(now()).toBe("b c");
    operators.add({ url: "http://a:1", id: "a" });
    expect(now()).toBe("a b c");
  });

  test("what is there is not added again, what is not there is not removed", async () => {
    const { operators } = await start(createTable(), "a");
    expect(codeOf(() => operators.add({ url: "http://a:1", id: "a" }))).toBe("engine_exists");
    expect(codeOf(() => operators.add({ url: "http://a:1", id: "other" }))).toBe("engine_exists");
    expect(codeOf(() => operators.remove(id("z")))).toBe("engine_not_found");
    operators.remove(id("a"));
    expect(codeOf(() => operators.remove(id("a")))).toBe("engine_not_found");
  });

  test.each([
    ["nothing", undefined],
    ["a list", [{ url: "http://a:1" }]],
    ["no URL", { id: "a" }],
    ["another scheme", { url: "file:///etc/passwd" }],
    ["credentials in the URL", { url: "http://user:secret@a:1" }],
    ["an unknown key", { url: "http://a:1", wieght: 2 }],
    ["a value out of range", { url: "http://a:1", weight: -1 }],
  ])("%s is refused", async (_what, written) => {
    const { operators, now } = await start(createTable(), "b");
    expect(codeOf(() => operators.add(written))).toBe("invalid_value");
    expect(now()).toBe("b");
  });

  test("are told of what happened before they started", async () => {
    const table = createTable();
    table.put("x", { url: "http://x:1", id: "x" });
    table.put("a", { removed: true });
    expect((await start(table, "a", "b")).now()).toBe("b x");
  });

  test("one that cannot be read is left out, and the log says so", async () => {
    const table = createTable();
    const { logger, now } = await start(table, "a");
    table.put("x", { url: "http://x:1", id: "x", "key-of-a-later-version": 1 });
    expect(now()).toBe("a");
    expect(logger.lines.map(({ level }) => level)).toContain("warn");
  });

  test("are as a plain set would have it, whatever is done in whatever order", async () => {
    const random = createSeededRandom(7);
    const { operators, list, now } = await start(createTable(), "a", "b");
    const names = ["a", "b", "c", "d"];
    let configured = new Set(["a", "b"]);
    const added = new Set<string>();
    const removed = new Set<string>();
    for (let step = 0; step < 300; step++) {
      const name = names[random.integer(names.length)]!;
      const isThere = (configured.has(name) || added.has(name)) && !removed.has(name);
      const act = random.integer(3);
      if (act === 0) {
        configured = new Set(names.filter(() => random.integer(2) === 0));
        list.replace(specs(...configured));
      } else if (act === 1 && isThere) {
        operators.remove(id(name));
        if (!added.delete(name)) removed.add(name);
      } else if (act === 2 && !isThere) {
        operators.add({ url: `http://${name}:1`, id: name });
        if (!removed.delete(name) || !configured.has(name)) added.add(name);
      }
      const expected = names.filter((one) => (configured.has(one) || added.has(one)) && !removed.has(one));
      expect(now()?.split(" ").filter(Boolean).sort(), `step ${step}`).toEqual(expected);
    }
  });

  test("are heard of no more after the stop", async () => {
    const table = createTable();
    const { stop, now } = await start(table, "a");
    await stop();
    table.put("x", { url: "http://x:1", id: "x" });
    expect(now()).toBe("a");
  });
});

test("a router by itself has room for so many, and one more is refused", () => {
  const table = createLocalTable();
  for (let at = 0; at < maxOperatorEngines; at++) table.put(`e${at}`, { url: "http://a:1" });
  expect(codeOf(() => table.put("one-more", { url: "http://a:1" }))).toBe("invalid_value");
  expect(codeOf(() => table.put("e0", { url: "http://b:1" }))).toBe("done");
});

test("what is too long for the registry is refused", () => {
  const table = createSharedTable(createLoneReplica(createVirtualTime()).replica.registry, "operator");
  expect(codeOf(() => table.put("a", { url: "http://a:1", labels: { text: "x".repeat(2_100) } }))).toBe(
    "invalid_value",
  );
});
