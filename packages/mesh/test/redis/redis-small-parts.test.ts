import { describe, expect, test } from "vitest";
import { createRedisKeys } from "../../src/redis/redis-keys.ts";
import { checkRedisUrl, isWrongType, listOf, pairsOf, textOf } from "../../src/redis/redis-session.ts";
import { FakeReplica } from "./fake-replica.ts";

const origin = (id: string, epoch = 1) => new FakeReplica(id, epoch).origin;

test("keys of a cluster are in one slot, and no two of them are the same", () => {
  const keys = createRedisKeys("blue");
  const names = [
    ...[keys.living, keys.journals, keys.olderMembers],
    ...[keys.inbox("a"), keys.inbox("b"), keys.olderLease("a")],
    ...[1, 2].map((version) => keys.journal({ origin: origin("a"), version })),
    ...["a", "b"].map((id) => keys.journal({ origin: origin(id, 2), version: 1 })),
  ];
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(/\{(.*?)\}/.exec(name)?.[1]).toBe("blue");
});

describe("what Redis answers", () => {
  test("is taken for a text, a list or pairs only when it is that", () => {
    expect([textOf(Buffer.from("ä")), textOf("b"), textOf(3), textOf(null), textOf([]), textOf(undefined)]).toEqual([
      "ä",
      "b",
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect([listOf(["a"]), listOf(null), listOf("a"), listOf(4)]).toEqual([["a"], [], [], []]);
    expect(pairsOf([Buffer.from("k"), 1, 7, "v", "left over"])).toEqual([
      ["k", 1],
      ["", "v"],
    ]);
  });

  test("is of the wrong type only when Redis says so", () => {
    expect(isWrongType(new Error("WRONGTYPE Operation against a key"))).toBe(true);
    expect(isWrongType(new Error("ERR WRONGTYPE"))).toBe(false);
    expect(isWrongType("WRONGTYPE")).toBe(false);
  });
});

describe("a URL of Redis", () => {
  test.each([
    ["redis://127.0.0.1:6379", "redis://127.0.0.1:6379"],
    ["rediss://user:secret@example.org:1/2", "rediss://example.org:1/2"],
    ["redis://:secret@[::1]:6379", "redis://[::1]:6379"],
    ["redis://host/?password=secret", "redis://host/"],
  ])("%j is told as %j", (url, reported) => {
    expect(checkRedisUrl(url)).toBe(reported);
  });

  test.each(["", "localhost:6379", "http://host", "unix:///secret", "://secret@"])("is not %j", (url) => {
    let error: unknown;
    try {
      checkRedisUrl(url);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ code: "redis_unusable", param: "mesh.redis-url" });
    expect(String(error)).not.toContain("secret");
  });
});
