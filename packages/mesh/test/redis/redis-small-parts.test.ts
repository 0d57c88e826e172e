import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createRedisKeys } from "../../src/redis/redis-keys.ts";
import { defaultRedisLimits } from "../../src/redis/redis-limits.ts";
import { JoinWatch, TrafficMeter } from "../../src/redis/redis-parts.ts";
import { checkRedisUrl, isWrongType, listOf, pairsOf, textOf } from "../../src/redis/redis-session.ts";
import { FakeReplica } from "./fake-replica.ts";

const origin = (id: string, epoch = 1) => new FakeReplica(id, epoch).origin;

describe("what a router that starts waits for", () => {
  const start = () => {
    const time = createVirtualTime();
    return { time, watch: new JoinWatch(time.clock, defaultRedisLimits) };
  };

  test("is Redis, its id, a snapshot, journals and gauges, each until it is there, and nothing ever after", () => {
    const { watch } = start();
    expect(watch.waitingFor([])).toEqual(["redis", "snapshot"]);
    watch.connected();
    watch.idTaken(true);
    watch.awaitGauges([origin("a"), origin("b", 2)]);
    const all = ["router id", "snapshot", "journal x@1", "gauges a@1", "gauges b@2"];
    expect(watch.waitingFor(["x@1"])).toEqual(all);
    watch.idTaken(false);
    watch.snapshotDone();
    watch.gaugesFrom(origin("a"));
    watch.gaugesFrom(origin("b", 1));
    expect(watch.waitingFor([])).toEqual(["gauges b@2"]);
    watch.gaugesFrom(origin("b", 2));
    expect(watch.waitingFor([])).toEqual([]);
    watch.idTaken(true);
    watch.awaitGauges([origin("c")]);
    expect(watch.waitingFor(["y@1"])).toEqual([]);
  });

  test("is given up after 5 s without Redis and after 30 s with it", () => {
    const [without, having] = [start(), start()];
    without.time.advance(4_999);
    expect(without.watch.waitingFor([])).not.toEqual([]);
    without.time.advance(1);
    expect(without.watch.waitingFor([])).toEqual([]);
    having.watch.connected();
    having.time.advance(29_999);
    expect(having.watch.waitingFor([])).toEqual(["snapshot"]);
    having.time.advance(1);
    expect(having.watch.waitingFor([])).toEqual([]);
  });

  test("holds no gauges that had time enough", () => {
    const { watch } = start();
    watch.connected();
    watch.snapshotDone();
    watch.awaitGauges([origin("a")]);
    watch.gaugesOverdue();
    expect(watch.waitingFor([])).toEqual([]);
  });
});

describe("the rate of a counter", () => {
  test("is that between two looks at least half a second apart, and the last one in between", () => {
    const time = createVirtualTime();
    const meter = new TrafficMeter(time.clock);
    expect(meter.of("a", 100)).toEqual({ bytes: 100, bytesPerS: 0 });
    time.advance(499);
    expect(meter.of("a", 900)).toEqual({ bytes: 900, bytesPerS: 0 });
    time.advance(1);
    expect(meter.of("a", 1_100)).toEqual({ bytes: 1_100, bytesPerS: 2_000 });
    time.advance(100);
    expect(meter.of("a", 9_000)).toEqual({ bytes: 9_000, bytesPerS: 2_000 });
    time.advance(1_900);
    expect(meter.of("a", 5_100)).toEqual({ bytes: 5_100, bytesPerS: 2_000 });
  });

  test("is never below zero when the counter began anew, and is of each name its own", () => {
    const time = createVirtualTime();
    const meter = new TrafficMeter(time.clock);
    meter.of("a", 5_000);
    meter.of("b", 0);
    time.advance(1_000);
    expect(meter.of("a", 10).bytesPerS).toBe(0);
    expect(meter.of("b", 10).bytesPerS).toBe(10);
    meter.keepOnly(new Set(["b"]));
    time.advance(1_000);
    expect(meter.of("a", 500).bytesPerS).toBe(0);
    expect(meter.of("b", 30).bytesPerS).toBe(20);
  });
});

test("keys of a cluster are in one slot, and no two of them are the same", () => {
  const keys = createRedisKeys("blue");
  const names = [
    ...[keys.load, keys.control, keys.members, keys.origins, keys.epochs, keys.nothing],
    ...[keys.lease("a"), keys.lease("b"), keys.snapshot("1"), keys.snapshot("2")],
    ...[keys.stream(origin("a"), 1), keys.stream(origin("a"), 2), keys.stream(origin("a", 2), 1)],
    ...[keys.blob(origin("a"), 1), keys.blob(origin("b"), 1)],
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
  ])("%j is told as %j", (url, told) => {
    expect(checkRedisUrl(url)).toBe(told);
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
