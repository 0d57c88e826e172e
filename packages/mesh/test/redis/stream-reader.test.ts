import { ByteWriter } from "@espalier/common";
import { describe, expect, test } from "vitest";
import { encodeStreamEntry } from "../../src/redis/blob.ts";
import type { RedisLimits } from "../../src/redis/redis-limits.ts";
import { announced, keys, makeReader, makeRedis, makeWriter, writeMany } from "./part-rig.ts";

/** A writer that has published, and a reader that follows it. */
async function follow(limits: Partial<RedisLimits> = {}) {
  const { time, redis } = makeRedis();
  const from = makeWriter(time);
  from.writer.attach(redis.session());
  await time.advanceAsync(0);
  const to = makeReader(time, limits);
  const session = redis.session();
  to.reader.setSources(announced(redis));
  to.reader.attach(session);
  await time.advanceAsync(0);
  const stream = keys.stream(from.replica.origin, announced(redis).get("a@1")!.incarnation);
  const blob = keys.blob(from.replica.origin, announced(redis).get("a@1")!.incarnation);
  const read = (): readonly string[] => to.replica.journal(from.replica.origin);
  return { time, redis, session, from, to, stream, blob, read };
}

const entry = (from: number, ...items: string[]): Buffer => {
  const bytes = new TextEncoder().encode(JSON.stringify(items));
  const update = { name: "journal/default/a/1", from, to: from + items.length, bytes };
  return Buffer.from(encodeStreamEntry({ update, sentMs: 0 }));
};

const header = (...varints: number[]): Buffer => {
  const writer = new ByteWriter(32);
  for (const value of varints) writer.varint(value);
  return Buffer.from(writer.copy());
};

describe("a journal", () => {
  test("is read from its blob, then as it is written, without asking while nothing happens", async () => {
    const { time, redis, from, read, to } = await follow();
    writeMany(from.replica, 0, 3);
    await time.advanceAsync(0);
    expect(to.reader.unread).toEqual([]);
    expect(read()).toEqual(["i0", "i1", "i2"]);
    const before = redis.ran("LINDEX");
    await time.advanceAsync(5_000);
    expect(redis.ran("LINDEX")).toBe(before);
  });

  test("counts as read once fewer entries came than are read at once", async () => {
    const { time, redis } = makeRedis();
    const from = makeWriter(time);
    from.writer.attach(redis.session());
    await time.advanceAsync(0);
    writeMany(from.replica, 0, 8);
    await time.advanceAsync(0);
    const to = makeReader(time, { readCount: 4 });
    to.reader.setSources(announced(redis));
    expect(to.reader.unread).toEqual(["a@1"]);
    const session = redis.session();
    to.reader.attach(session);
    await time.advanceAsync(0);
    expect(to.replica.journal(from.replica.origin)).toHaveLength(8);
    expect(to.reader.unread).toEqual(["a@1"]);
    await time.advanceAsync(500);
    expect(to.reader.unread).toEqual([]);
  });

  test("that is announced while a read waits is read at once", async () => {
    const { time, redis, to } = await follow();
    const other = makeWriter(time, {}, "b");
    other.writer.attach(redis.session());
    writeMany(other.replica, 0, 2);
    await time.advanceAsync(0);
    writeMany(other.replica, 2, 3);
    to.reader.setSources(announced(redis));
    await time.advanceAsync(0);
    expect(to.replica.journal(other.replica.origin)).toHaveLength(3);
  });

  test("that is announced no more is forgotten, with what was known of it", async () => {
    const { to, from } = await follow();
    expect(to.reader.stats(from.replica.origin)).toBeDefined();
    to.reader.setSources(new Map());
    expect(to.reader.stats(from.replica.origin)).toBeUndefined();
  });

  test("of a new incarnation is read from its beginning, and what was counted goes on", async () => {
    const { time, redis, from, to, read } = await follow();
    writeMany(from.replica, 0, 3);
    await time.advanceAsync(0);
    const { receivedBytes } = to.reader.stats(from.replica.origin)!;
    from.writer.republish();
    await time.advanceAsync(0);
    to.reader.setSources(announced(redis));
    writeMany(from.replica, 3, 5);
    await time.advanceAsync(0);
    expect(read()).toHaveLength(5);
    expect(to.reader.stats(from.replica.origin)!.receivedBytes).toBeGreaterThan(receivedBytes);
  });
});

describe("a journal that is read", () => {
  test("that the replica gave up is read no more", async () => {
    const { time, redis, from, to } = await follow();
    to.replica.droppedJournals.add("journal/default/a/1");
    writeMany(from.replica, 0, 1);
    await time.advanceAsync(0);
    expect(to.reader.dropped.map(({ router }) => router)).toEqual(["a"]);
    expect(to.reader.unread).toEqual([]);
    const read = (): number =>
      redis.log.filter((line) => line.startsWith("XREAD") && line.includes(":journal:a:")).length;
    const before = read();
    writeMany(from.replica, 1, 9);
    await time.advanceAsync(3_000);
    expect(read()).toBeLessThanOrEqual(before + 1);
  });

  test("goes on with the next session where it stopped", async () => {
    const { time, redis, session, from, to, read } = await follow();
    const blobBytes = to.reader.stats(from.replica.origin)!.receivedBytes;
    writeMany(from.replica, 0, 2);
    await time.advanceAsync(0);
    to.reader.detach();
    session.end("test");
    writeMany(from.replica, 2, 4);
    await time.advanceAsync(2_000);
    expect(read()).toHaveLength(2);
    const { receivedBytes } = to.reader.stats(from.replica.origin)!;
    to.reader.attach(redis.session());
    await time.advanceAsync(0);
    expect(read()).toEqual(["i0", "i1", "i2", "i3"]);
    expect(to.reader.stats(from.replica.origin)!.receivedBytes).toBe(2 * receivedBytes - blobBytes);
  });

  test("is read on half a second after Redis refused a read, not before", async () => {
    const { time, redis, from, read } = await follow();
    redis.fault = ([name]) => (name === "XREAD" ? "refused" : undefined);
    writeMany(from.replica, 0, 1);
    await time.advanceAsync(0);
    writeMany(from.replica, 1, 2);
    await time.advanceAsync(400);
    redis.fault = () => undefined;
    await time.advanceAsync(99);
    expect(read()).toHaveLength(1);
    await time.advanceAsync(1);
    expect(read()).toHaveLength(2);
  });

  test("has the lag of its latest change, and none before the first nor from a clock that is ahead", async () => {
    const { time, redis, from, to, stream } = await follow();
    expect(to.reader.stats(from.replica.origin)!.lagMs).toBeNaN();
    await time.advanceAsync(200);
    const late = encodeStreamEntry({
      update: { name: "journal/default/a/1", from: 0, to: 0, bytes: new TextEncoder().encode("[]") },
      sentMs: time.clock.wallMs() - 150,
    });
    redis.do("XADD", stream, "1-0", "u", late);
    await time.advanceAsync(0);
    expect(to.reader.stats(from.replica.origin)!.lagMs).toBe(150);
    redis.do("XADD", stream, "2-0", "u", encodeStreamEntry({ ...decodeOf(), sentMs: time.clock.wallMs() + 9_000 }));
    await time.advanceAsync(0);
    expect(to.reader.stats(from.replica.origin)!.lagMs).toBe(0);
  });
});

const decodeOf = () => ({
  update: { name: "journal/default/a/1", from: 0, to: 0, bytes: new TextEncoder().encode("[]") },
});

describe("a hole in a stream", () => {
  test("is filled from the blob, and nobody is asked", async () => {
    const { time, redis, to, stream, blob, read } = await follow();
    redis.do("DEL", blob);
    for (const piece of [entry(0, "x"), entry(1, "y"), header(1, 2, 2)].slice(0, 2)) redis.do("RPUSH", blob, piece);
    redis.do("LPUSH", blob, header(1, 2, 2));
    redis.do("XADD", stream, "3-0", "u", entry(2, "z"));
    await time.advanceAsync(0);
    expect(read()).toEqual(["x", "y", "z"]);
    expect(to.shared.incidents).toEqual(["gap"]);
    expect(to.holes).toEqual([]);
  });

  test("that the blob does not fill is told to its writer, whose new publication brings all", async () => {
    const { time, redis, from, to, stream, read } = await follow();
    from.writer.detach();
    redis.do("XADD", stream, "5-0", "u", entry(4, "lost"));
    await time.advanceAsync(0);
    expect(to.holes).toContain("a@1");
    writeMany(from.replica, 0, 6);
    from.writer.attach(redis.session());
    from.writer.republish();
    await time.advanceAsync(0);
    to.reader.setSources(announced(redis));
    await time.advanceAsync(500);
    expect(read()).toHaveLength(6);
  });

  test("that only the replica sees has the blob read once a second, and its writer asked from the second on", async () => {
    const { time, redis, to, stream, blob } = await follow();
    const gap = (id: number): void => void redis.do("XADD", stream, `${id}-0`, "u", entry(7 + id, "early"));
    gap(1);
    await time.advanceAsync(0);
    const readings = (): number => redis.ran(`LINDEX ${blob}`);
    const before = readings();
    gap(2);
    gap(3);
    await time.advanceAsync(900);
    expect(readings()).toBe(before);
    await time.advanceAsync(600);
    expect(readings()).toBe(before + 2);
    expect(to.shared.incidents.filter((incident) => incident === "gap")).toHaveLength(3);
    expect(to.holes).toEqual([]);
  });
});

describe("what no router wrote", () => {
  const update = { name: "journal/default/a/1", from: 0, to: 1, bytes: new TextEncoder().encode('["x"]') };
  const good = encodeStreamEntry({ update, sentMs: 0 });

  test.each<[string, string, (string | Uint8Array)[]]>([
    ["no field of ours", "1-0", ["hello", "world"]],
    ["no bytes", "1-0", ["u", ""]],
    ["another version", "1-0", ["u", Uint8Array.of(2, ...good.subarray(1))]],
    ["an id of Redis' own", "1-7", ["u", good]],
    ["an id beyond safe integers", "99999999999999999999-0", ["u", good]],
  ])("is counted and passed over: %s", async (_, id, fields) => {
    const { time, redis, to, stream, read } = await follow();
    redis.do("XADD", stream, id, ...fields);
    await time.advanceAsync(0);
    expect(to.shared.incidents).toEqual(["entry-invalid"]);
    expect(read()).toEqual([]);
  });

  test("is passed over in a stream, where the first one of its bound is read and one byte more is not", async () => {
    const { time, redis, to, stream, read } = await follow({ maxEntryBytes: good.length });
    redis.do("XADD", stream, "1-0", "u", good);
    redis.do("XADD", stream, "2-0", "u", entry(1, "yy"));
    await time.advanceAsync(0);
    expect(read()).toEqual(["x"]);
    expect(to.shared.incidents).toEqual(["entry-invalid"]);
  });

  test("is removed where a stream should be, and the writer's next publication is read", async () => {
    const { time, redis, from, to, stream, read } = await follow();
    redis.do("DEL", stream);
    redis.do("SET", stream, "mine");
    await time.advanceAsync(600);
    expect(to.shared.incidents).toEqual(["key-of-other-type"]);
    expect(redis.do("TYPE", stream)).toBe("none");
    writeMany(from.replica, 0, 1);
    await time.advanceAsync(0);
    expect(read()).toEqual(["i0"]);
  });

  test.each<[string, Buffer[]]>([
    ["a header of another version", [header(2, 0, 1), entry(0, "x")]],
    ["a header that is cut off", [header(1, 0)]],
    ["a header with more behind it", [header(1, 0, 1, 0), entry(0, "x")]],
    ["more pieces than the bound", [header(1, 0, 5), ...[0, 1, 2, 3, 4].map((at) => entry(at, "x"))]],
    ["a piece that is unreadable", [header(1, 0, 1), Buffer.from([1, 255])]],
  ])("is counted where a blob should be: %s", async (_, list) => {
    const { time, redis } = makeRedis();
    const { reader, replica, shared } = makeReader(time, { maxBlobPieces: 4 });
    const { origin } = makeWriter(time).replica;
    for (const item of list) redis.do("RPUSH", keys.blob(origin, 1), item);
    reader.setSources(new Map([["a@1", { origin, incarnation: 1 }]]));
    reader.attach(redis.session());
    await time.advanceAsync(0);
    expect(shared.incidents).toEqual(["entry-invalid"]);
    expect(replica.journal(origin)).toEqual([]);
  });

  test("is no reason against a blob of as many pieces as the bound", async () => {
    const { time, redis } = makeRedis();
    const { reader, replica, shared } = makeReader(time, { maxBlobPieces: 17 });
    const { origin } = makeWriter(time).replica;
    const pieces = Array.from({ length: 17 }, (_, at) => entry(at, `p${at}`));
    for (const item of [header(1, 0, 17), ...pieces]) redis.do("RPUSH", keys.blob(origin, 1), item);
    reader.setSources(new Map([["a@1", { origin, incarnation: 1 }]]));
    reader.attach(redis.session());
    await time.advanceAsync(0);
    expect(replica.journal(origin)).toHaveLength(17);
    expect(shared.incidents).toEqual([]);
  });
});

describe("a blob that is replaced while it is read", () => {
  async function replaced(times: number) {
    const { time, redis } = makeRedis();
    const { reader, replica, shared } = makeReader(time);
    const { origin } = makeWriter(time).replica;
    const key = keys.blob(origin, 1);
    const put = (count: number): void => {
      redis.do("DEL", key);
      redis.do("RPUSH", key, header(1, count, count));
      for (let at = 0; at < count; at++) redis.do("RPUSH", key, entry(at, `p${at}`));
    };
    put(1);
    let replacements = 0;
    redis.fault = ([name]) => {
      if (name === "LRANGE" && replacements < times) put(++replacements + 1);
      return undefined;
    };
    reader.setSources(new Map([["a@1", { origin, incarnation: 1 }]]));
    reader.attach(redis.session());
    await time.advanceAsync(0);
    return { redis, key, items: replica.journal(origin), incidents: shared.incidents, streamReads: redis.log };
  }

  test("is read again, and its stream from behind what it covers", async () => {
    const { redis, key, items, streamReads } = await replaced(1);
    expect(items).toEqual(["p0", "p1"]);
    expect(redis.ran(`LINDEX ${key}`)).toBe(4);
    expect(streamReads.some((line) => line.startsWith("XREAD") && line.includes(" 2-0 0-0"))).toBe(true);
  });

  test("is read three times at most, and what came of it is kept", async () => {
    const { redis, key, items, streamReads } = await replaced(100);
    expect(redis.ran(`LINDEX ${key}`)).toBe(6);
    expect(items.length).toBeGreaterThanOrEqual(1);
    expect(streamReads.some((line) => line.startsWith("XREAD") && line.includes(" 0-0 0-0"))).toBe(true);
  });
});

test("as many journals are read as the bound, one more is counted, and has its place once another is gone", async () => {
  const { time, redis } = makeRedis();
  const { reader, shared } = makeReader(time, { maxSources: 2 });
  const placed = (...routers: string[]) =>
    new Map(
      routers.map((router) => {
        const { origin } = makeWriter(time, {}, router).replica;
        return [`${router}@1`, { origin, incarnation: 1 }] as const;
      }),
    );
  reader.attach(redis.session());
  reader.setSources(placed("a", "b"));
  expect(shared.incidents).toEqual([]);
  reader.setSources(placed("a", "b", "c"));
  expect(shared.incidents).toEqual(["too-many-sources"]);
  expect(reader.unread).toEqual(["a@1", "b@1"]);
  reader.setSources(placed("b", "c"));
  expect(shared.incidents).toEqual(["too-many-sources"]);
  expect(reader.unread).toEqual(["b@1", "c@1"]);
});
