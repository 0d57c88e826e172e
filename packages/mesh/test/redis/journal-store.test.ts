import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { decodeStoredPiece, encodeStoredPiece, JournalStore } from "../../src/redis/journal-store.ts";
import type { RedisLimits } from "../../src/redis/redis-keys.ts";
import { FakeRedis } from "./fake-redis.ts";
import { FakeReplica } from "./fake-replica.ts";
import { keys, makeShared, writeMany } from "./part-rig.ts";

function makeStore(limits: Partial<RedisLimits> = {}, epoch = 1) {
  const time = createVirtualTime();
  const redis = new FakeRedis(time);
  const make = (id: string) => {
    const replica = new FakeReplica(id, epoch);
    const shared = makeShared(time, limits);
    const store = new JournalStore({ ...shared, documents: replica.documents, origin: () => replica.origin });
    store.start();
    return { replica, store, incidents: shared.incidents };
  };
  const announced = (of: FakeReplica) => {
    const version = redis.do("HGET", keys.journals, `${of.origin.router}@${of.origin.epoch}`);
    return version === null ? undefined : { origin: of.origin, version: Number(String(version)) };
  };
  return { time, redis, session: redis.session(), make, announced, ...make("a") };
}

describe("the own journal", () => {
  test("is stored in pieces, and read by another as it was", async () => {
    const { store, replica, session, make, announced, redis } = makeStore({ pieceBytes: 640 });
    writeMany(replica, 0, 95);
    replica.register("known to all");
    await store.keep(session, undefined);
    const stored = announced(replica)!;
    expect(redis.do("LRANGE", keys.journal(stored), "0", "99")).toHaveLength(11);
    const other = make("b");
    await other.store.load(session, [stored], isGone);
    expect(other.replica.journal(replica.origin)).toEqual(replica.journal(replica.origin));
    expect([...other.replica.registry]).toEqual(["known to all"]);
  });

  test("is stored again when it has changed, no sooner than after the least time", async () => {
    const { store, replica, session, announced, time, redis } = makeStore({ storeMs: 2_000 });
    const version = () => announced(replica)?.version;
    const keep = () => store.keep(session, announced(replica));
    await keep();
    const first = version();
    await time.advanceAsync(2_000);
    await keep();
    expect(version()).toBe(first);
    replica.write("x");
    await keep();
    const second = version();
    expect(second).toBeGreaterThan(first!);
    replica.write("y");
    await time.advanceAsync(1_999);
    await keep();
    expect(version()).toBe(second);
    await time.advanceAsync(1);
    await keep();
    expect(version()).toBeGreaterThan(second!);
    expect(redis.keys(":journal:")).toHaveLength(1);
  });

  test("that is large is stored less often", async () => {
    const { store, replica, session, announced, time } = makeStore({ storeMs: 100, storeBytesPerS: 1_000 });
    writeMany(replica, 0, 1_000);
    await store.keep(session, undefined);
    const first = announced(replica)!.version;
    replica.write("more");
    await time.advanceAsync(5_000);
    await store.keep(session, announced(replica));
    expect(announced(replica)!.version).toBe(first);
    await time.advanceAsync(5_000);
    await store.keep(session, announced(replica));
    expect(announced(replica)!.version).toBeGreaterThan(first);
  });

  test("lives as long as its writer, and an hour more", async () => {
    const { store, replica, session, announced, time, redis } = makeStore();
    await store.keep(session, undefined);
    const key = keys.journal(announced(replica)!);
    await time.advanceAsync(3_000_000);
    expect(redis.ttlMs(key)).toBe(600_000);
    await store.keep(session, announced(replica));
    expect(redis.ttlMs(key)).toBe(3_600_000);
  });

  test.each(["journal", "announcement"])("is stored again when its %s is gone", async (what) => {
    const { store, replica, session, announced, redis, incidents } = makeStore();
    await store.keep(session, undefined);
    const before = announced(replica)!;
    if (what === "journal") redis.do("DEL", keys.journal(before));
    else redis.do("HDEL", keys.journals, "a@1");
    await store.keep(session, announced(replica));
    expect(incidents).toEqual(["republished"]);
    expect(announced(replica)!.version).toBeGreaterThan(before.version);
    expect(redis.keys(":journal:")).toEqual([keys.journal(announced(replica)!)]);
    await store.keep(session, announced(replica));
    expect(incidents).toHaveLength(1);
  });

  test("of a process that went on under another epoch takes the place of the one before", async () => {
    const { store, replica, session, announced, redis } = makeStore();
    await store.keep(session, undefined);
    replica.renewEpoch(5);
    await store.keep(session, announced(replica));
    expect(redis.keys(":journal:")).toEqual([keys.journal(announced(replica)!)]);
    expect(redis.do("HLEN", keys.journals)).toBe(1);
  });

  test("that Redis has no room for is tried again later, and leaves nothing behind", async () => {
    const { store, replica, session, announced, time, redis, incidents } = makeStore();
    writeMany(replica, 0, 10);
    redis.fault = ([name]) => (name === "HSET" ? "refused" : undefined);
    await store.keep(session, undefined);
    expect(incidents).toEqual(["store-failed"]);
    expect(redis.keys(":journal:")).toEqual([]);
    redis.fault = () => undefined;
    await store.keep(session, undefined);
    expect(redis.keys(":journal:")).toEqual([]);
    await time.advanceAsync(2_000);
    await store.keep(session, undefined);
    expect(redis.keys(":journal:")).toEqual([keys.journal(announced(replica)!)]);
  });

  test("goes by itself when its writer died while it wrote", async () => {
    const { store, replica, session, redis } = makeStore({ journalTtlMs: 5_000 });
    writeMany(replica, 0, 10);
    redis.fault = ([name]) => (name === "HSET" ? "unheard" : undefined);
    await store.keep(session, undefined);
    for (const key of redis.keys(":journal:")) expect(redis.ttlMs(key)).toBeLessThanOrEqual(5_000);
  });
});

const isGone = (): boolean => true;

describe("journals of others", () => {
  test("are read once each, as many as the bound", async () => {
    const { session, make, redis, incidents, store, announced, replica } = makeStore({ maxSources: 2 });
    const others = ["b", "c", "d"].map(make);
    for (const other of others) {
      other.replica.write("x");
      await other.store.keep(session, undefined);
    }
    const stored = others.map(({ replica }) => announced(replica)!);
    await store.load(session, stored.slice(0, 2), isGone);
    expect(incidents).toEqual([]);
    const reads = redis.ran("LRANGE");
    await store.load(session, stored.slice(0, 2), isGone);
    expect(redis.ran("LRANGE")).toBe(reads);
    await store.load(session, stored, isGone);
    expect(incidents).toEqual(["too-many-sources"]);
    // Journals that Redis has no more do not count: a router that runs for long meets any number of them.
    await store.load(session, stored.slice(1), isGone);
    expect(incidents).toHaveLength(1);
    expect(replica.journal(others[2]!.replica.origin)).toEqual(["x"]);
  });

  test.each([
    ["bytes that are no piece", "RPUSH", "nonsense"],
    ["something of another type", "SET", "x"],
  ])("that hold %s are counted, and the next is read", async (_, command, value) => {
    const { session, make, redis, incidents, store, announced, replica } = makeStore();
    const [bad, good] = [make("b"), make("c")] as const;
    good.replica.write("x");
    await good.store.keep(session, undefined);
    const spoiled = { origin: bad.replica.origin, version: 1 };
    redis.do(command, keys.journal(spoiled), value);
    await store.load(session, [spoiled, announced(good.replica)!], isGone);
    expect(incidents).toHaveLength(1);
    expect(replica.journal(good.replica.origin)).toEqual(["x"]);
  });

  test("that lack a piece are read as far as they go", async () => {
    const { session, make, redis, incidents, store, announced, replica } = makeStore({ pieceBytes: 64 });
    const other = make("b");
    writeMany(other.replica, 0, 3);
    await other.store.keep(session, undefined);
    const stored = announced(other.replica)!;
    const pieces = redis.do("LRANGE", keys.journal(stored), "0", "9") as Buffer[];
    redis.do("DEL", keys.journal(stored));
    for (const at of [0, 1, 3]) redis.do("RPUSH", keys.journal(stored), pieces[at]!);
    await store.load(session, [stored], isGone);
    expect(incidents).toEqual(["entry-invalid"]);
    expect(replica.journal(other.replica.origin)).toEqual(["i0"]);
  });

  test("are given up when the session ends", async () => {
    const { session, make, redis, store, announced } = makeStore();
    const other = make("b");
    await other.store.keep(session, undefined);
    redis.fault = ([name]) => (name === "LRANGE" ? "unheard" : undefined);
    await expect(store.load(session, [announced(other.replica)!], isGone)).rejects.toThrow();
  });
});

describe("a stored piece", () => {
  const update = { name: "journal/x", from: 3, to: 200, bytes: Uint8Array.of(1, 2, 3) };
  const bytes = encodeStoredPiece(update);

  test("comes back as it was", () => {
    const back = decodeStoredPiece(bytes, bytes.length);
    expect({ ...back, bytes: new Uint8Array(back.bytes) }).toEqual(update);
  });

  test("that is too long, cut, or of no document is none", () => {
    expect(() => decodeStoredPiece(bytes, bytes.length - 1)).toThrow(RangeError);
    for (let length = 0; length < bytes.length - 3; length++) {
      expect(() => decodeStoredPiece(bytes.subarray(0, length), 100)).toThrow(RangeError);
    }
    expect(() => decodeStoredPiece(encodeStoredPiece({ ...update, name: "" }), 100)).toThrow(RangeError);
    const named = (length: number) => encodeStoredPiece({ ...update, name: "x".repeat(length) });
    expect(decodeStoredPiece(named(512), 1_000).name).toHaveLength(512);
    expect(() => decodeStoredPiece(named(513), 1_000)).toThrow(RangeError);
    expect(() => decodeStoredPiece(encodeStoredPiece({ ...update, from: 201 }), 100)).toThrow(RangeError);
    expect(() => decodeStoredPiece(Uint8Array.of(2, ...bytes.subarray(1)), 100)).toThrow(RangeError);
  });
});
