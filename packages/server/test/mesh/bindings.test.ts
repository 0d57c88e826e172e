import { describe, expect, test } from "vitest";
import { createStoredResponses } from "../../src/data-plane/stored-responses.ts";

describe("who holds a stored response", () => {
  function bindings() {
    const reported: string[] = [];
    const known = new Map<string, string>();
    return {
      reported,
      known,
      get: (id: string) => known.get(id),
      set: (id: string, engine: string, ttlMs: number) => void reported.push(`${id} is at ${engine} for ${ttlMs} ms`),
      forget: (id: string) => void reported.push(`forget ${id}`),
    };
  }

  test("is told to other routers once, however often it is used", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    for (let turn = 0; turn < 3; turn++) stored.remember("resp_1", "engine-a");
    stored.holderOf("resp_1");
    expect(shared.reported).toEqual(["resp_1 is at engine-a for 3600000 ms"]);
    stored.remember("resp_1", "engine-b");
    expect(shared.reported).toHaveLength(2);
  });

  test("is what this router knows, else what another one has told, else unknown", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    shared.known.set("resp_1", "engine-b").set("resp_2", "engine-c");
    stored.remember("resp_1", "engine-a");
    expect(["resp_1", "resp_2", "resp_3"].map((id) => stored.holderOf(id))).toEqual([
      "engine-a",
      "engine-c",
      undefined,
    ]);
  });

  test("is forgotten by all when it is deleted", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    stored.remember("resp_1", "engine-a");
    stored.forget("resp_1");
    expect([stored.holderOf("resp_1"), shared.reported.at(-1)]).toEqual([undefined, "forget resp_1"]);
  });

  test("one past the capacity, the one used longest ago is asked of the others", () => {
    const shared = bindings();
    const stored = createStoredResponses(2, shared);
    stored.remember("resp_1", "engine-a");
    stored.remember("resp_2", "engine-a");
    stored.holderOf("resp_1");
    stored.remember("resp_3", "engine-a");
    shared.known.set("resp_2", "engine-a");
    expect([stored.size, stored.holderOf("resp_2")]).toEqual([2, "engine-a"]);
    expect(shared.reported.some((line) => line.startsWith("forget"))).toBe(false);
  });
});
