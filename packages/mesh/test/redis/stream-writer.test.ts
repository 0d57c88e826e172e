import { describe, expect, test } from "vitest";
import { encodeStreamEntry } from "../../src/redis/blob.ts";
import { keys, makeRedis, makeWriter, writeMany } from "./part-rig.ts";

const settled = 20;

async function published(limits: Parameters<typeof makeWriter>[1] = {}) {
  const { time, redis } = makeRedis();
  const made = makeWriter(time, limits);
  const session = redis.session();
  made.writer.attach(session);
  await time.advanceAsync(settled);
  const stream = (): string => redis.keys(":journal:")[0] ?? "";
  const ids = (): string[] => {
    const reply = redis.do("XREAD", "COUNT", "100000", "BLOCK", "0", "STREAMS", stream(), "0-0");
    const [[, items]] = reply as [[Buffer, [Buffer, Buffer[]][]]];
    return items.map(([id]) => id.toString());
  };
  return { time, redis, session, stream, ids, ...made };
}

describe("what a writer publishes", () => {
  test("is a blob that covers nothing of the stream, its announcement, and then every change in order", async () => {
    const { time, redis, replica, announcements, ids, writer } = await published();
    expect(redis.keys()).toEqual([keys.blob(replica.origin, time.clock.wallMs() - settled), keys.origins]);
    expect(announcements).toHaveLength(1);
    writeMany(replica, 0, 5);
    await time.advanceAsync(0);
    expect(ids()).toEqual(["1-0", "2-0", "3-0", "4-0", "5-0"]);
    expect(writer.queuedBytes).toBe(0);
    expect(writer.sentBytes).toBeGreaterThan(5 * 20);
  });

  test("stays under way in a bounded number of commands", async () => {
    const { time, session, replica, ids } = await published();
    session.mostUnderWay = 0;
    writeMany(replica, 0, 65);
    await time.advanceAsync(0);
    expect(session.mostUnderWay).toBe(64);
    expect(ids()).toHaveLength(65);
  });

  test("waits in order while there is no session, and goes out with the next one", async () => {
    const { time, redis, session, replica, writer, ids } = await published();
    session.end("test");
    writer.detach();
    writeMany(replica, 0, 3);
    await time.advanceAsync(5_000);
    expect(writer.queuedBytes).toBeGreaterThan(0);
    writer.attach(redis.session());
    await time.advanceAsync(0);
    expect(ids()).toEqual(["1-0", "2-0", "3-0"]);
  });

  test("is there once, when the answer to a change was lost and it is sent again", async () => {
    const { time, redis, replica, writer, ids, shared } = await published();
    let lost = 0;
    redis.fault = ([name]) => (name === "XADD" && ++lost === 2 ? "unheard" : undefined);
    writeMany(replica, 0, 3);
    await time.advanceAsync(0);
    writer.detach();
    writer.attach(redis.session());
    await time.advanceAsync(0);
    expect(ids()).toEqual(["1-0", "2-0", "3-0"]);
    expect(writer.queuedBytes).toBe(0);
    expect(shared.incidents).toEqual([]);
  });

  test("is published anew a second after Redis refused a change, and not at once", async () => {
    const { time, redis, replica, shared, ids, announcements } = await published();
    redis.fault = ([name]) => (name === "XADD" ? "refused" : undefined);
    writeMany(replica, 0, 2);
    await time.advanceAsync(999);
    expect(announcements).toHaveLength(1);
    redis.fault = () => undefined;
    await time.advanceAsync(1);
    expect(announcements).toHaveLength(2);
    expect(shared.incidents).toEqual(["republished"]);
    writeMany(replica, 2, 3);
    await time.advanceAsync(0);
    expect(ids()).toEqual(["1-0"]);
    expect(redis.keys(":doc:")).toHaveLength(1);
  });

  test("is tried every second for as long as Redis refuses to take it", async () => {
    const { time, redis } = makeRedis();
    const { writer, announcements } = makeWriter(time);
    redis.fault = ([name]) => (name === "RPUSH" || name === "LPUSH" ? "refused" : undefined);
    writer.attach(redis.session());
    await time.advanceAsync(4_500);
    // Each try empties its draft before and after.
    expect(redis.ran("DEL espalier:{test}:doc:")).toBe(10);
    expect(announcements).toEqual([]);
    redis.fault = () => undefined;
    await time.advanceAsync(1_000);
    expect(announcements).toEqual([5_000]);
  });

  test("takes the place of what another program wrote where announcements stand", async () => {
    const { time, redis } = makeRedis();
    redis.do("SET", keys.origins, "mine");
    const { writer, shared, announcements } = makeWriter(time);
    writer.attach(redis.session());
    await time.advanceAsync(1_000);
    expect(shared.incidents).toContain("key-of-other-type");
    expect(announcements).toHaveLength(1);
    expect(redis.do("TYPE", keys.origins)).toBe("hash");
  });

  test("stands under the new name when the epoch changes, and no more under the old one", async () => {
    const { time, redis, writer, replica } = await published();
    writeMany(replica, 0, 2);
    await time.advanceAsync(0);
    replica.renewEpoch(8);
    await writer.check(redis.do("HGET", keys.origins, "a@1")?.toString());
    expect(redis.do("HGET", keys.origins, "a@1")).toBeNull();
    expect(redis.do("HGET", keys.origins, "a@9")).not.toBeNull();
    expect(redis.keys(":1:")).toEqual([]);
    expect(redis.keys(":doc:a:9:")).toHaveLength(1);
  });
});

describe("a look at what was written", () => {
  const lost = [
    ["its announcement", (redis: ReturnType<typeof makeRedis>["redis"]) => redis.do("DEL", keys.origins)],
    ["its stream", (redis: ReturnType<typeof makeRedis>["redis"]) => redis.do("DEL", ...redis.keys(":journal:"))],
    ["its blob", (redis: ReturnType<typeof makeRedis>["redis"]) => redis.do("DEL", ...redis.keys(":doc:"))],
    ["everything", (redis: ReturnType<typeof makeRedis>["redis"]) => redis.flush()],
  ] as const;

  test.each(lost)("publishes all anew when %s is gone", async (_, lose) => {
    const { time, redis, writer, replica, announcements } = await published();
    writeMany(replica, 0, 2);
    await time.advanceAsync(0);
    lose(redis);
    await writer.check(redis.do("HGET", keys.origins, "a@1")?.toString());
    expect(announcements).toHaveLength(2);
    expect(redis.keys(":doc:")).toHaveLength(1);
    expect(redis.keys(":journal:")).toEqual([]);
  });

  test("does not miss a stream that nothing was written to", async () => {
    const { redis, writer, announcements } = await published();
    await writer.check(redis.do("HGET", keys.origins, "a@1")?.toString());
    expect(announcements).toHaveLength(1);
  });

  test("lets what was written live for the whole time again", async () => {
    const { time, redis, writer, replica } = await published({ journalTtlMs: 10_000 });
    writeMany(replica, 0, 1);
    await time.advanceAsync(9_000);
    await writer.check(redis.do("HGET", keys.origins, "a@1")?.toString());
    await time.advanceAsync(9_999);
    expect(redis.keys(":journal:")).toHaveLength(1);
    expect(redis.keys(":doc:")).toHaveLength(1);
    await time.advanceAsync(1);
    expect(redis.keys(":journal:").concat(redis.keys(":doc:"))).toEqual([]);
  });

  // Symptom: a journal stayed in Redis for ever when its writer died within half a second of its first change.
  // Mechanism: an append makes a stream that never expires, and only the next look gave it an end.
  test("is not needed for the first change to expire when its writer dies at once", async () => {
    const { time, redis, replica, stream } = await published({ journalTtlMs: 10_000 });
    writeMany(replica, 0, 1);
    await time.advanceAsync(0);
    expect(redis.ttlMs(stream())).toBe(10_000);
  });
});

describe("changes that wait", () => {
  const entryBytes = (text: string, at: number): number => {
    const { name } = makeWriter(makeRedis().time).replica;
    const bytes = new TextEncoder().encode(JSON.stringify([text]));
    const update = { name, from: at, to: at + 1, bytes };
    return encodeStreamEntry({ update, sentMs: 1_700_000_000_000 }).length;
  };

  test("take as many bytes as the bound; one byte more drops them all, and they are published anew", async () => {
    const maxQueuedBytes = entryBytes("x", 0) + entryBytes("yy", 1);
    const { time, redis } = makeRedis();
    const fits = makeWriter(time, { maxQueuedBytes });
    fits.replica.write("x");
    fits.replica.write("yy");
    expect(fits.writer.queuedBytes).toBe(maxQueuedBytes);
    expect(fits.shared.incidents).toEqual([]);
    const full = makeWriter(time, { maxQueuedBytes }, "b");
    full.replica.write("x");
    full.replica.write("yyy");
    expect(full.writer.queuedBytes).toBe(0);
    expect(full.shared.incidents).toEqual(["queue-full"]);
    full.writer.attach(redis.session());
    await time.advanceAsync(0);
    expect(full.announcements).toHaveLength(1);
    expect(redis.do("LLEN", redis.keys(":doc:b")[0]!)).toBe(3);
  });

  test("are dropped once for each time that they are too many, however many come after", async () => {
    const { time, redis } = makeRedis();
    const { writer, replica, shared } = makeWriter(time, { maxQueuedUpdates: 3 });
    writeMany(replica, 0, 50);
    expect(shared.incidents).toEqual(["queue-full"]);
    writer.attach(redis.session());
    await time.advanceAsync(0);
    writer.detach();
    writeMany(replica, 50, 54);
    expect(shared.incidents.filter((incident) => incident === "queue-full")).toHaveLength(2);
  });

  test("are counted out when they are in Redis, and their writer waits for that, but not for ever", async () => {
    const { time, redis, session, writer, replica } = await published();
    writeMany(replica, 0, 3);
    let isSettled = false;
    void writer.settle(1_000).then(() => {
      isSettled = true;
    });
    await time.advanceAsync(5);
    expect([isSettled, writer.queuedBytes]).toEqual([true, 0]);
    redis.fault = ([name]) => (name === "XADD" ? "refused" : undefined);
    writeMany(replica, 3, 4);
    let isGivenUp = false;
    void writer.settle(100).then(() => {
      isGivenUp = true;
    });
    await time.advanceAsync(99);
    expect(isGivenUp).toBe(false);
    await time.advanceAsync(6);
    expect(isGivenUp).toBe(true);
    expect(session.isEnded).toBe(false);
  });

  test("are not waited for without a session", async () => {
    const { writer, replica } = await published();
    writer.detach();
    writeMany(replica, 0, 3);
    await writer.settle(60_000);
    expect(writer.queuedBytes).toBeGreaterThan(0);
  });
});

describe("a blob", () => {
  test("is written again after one entry more than the bound, and the stream begins with the last one that it covers", async () => {
    const { time, redis, replica, ids } = await published({ blobAfterEntries: 10 });
    writeMany(replica, 0, 10);
    await time.advanceAsync(0);
    expect([redis.ran("RENAME"), ids().length]).toEqual([1, 10]);
    writeMany(replica, 10, 11);
    await time.advanceAsync(0);
    expect([redis.ran("RENAME"), redis.ran("XTRIM")]).toEqual([2, 1]);
    writeMany(replica, 11, 12);
    await time.advanceAsync(0);
    expect(ids()).toEqual(["11-0", "12-0"]);
  });

  test("is written again when the stream has more bytes than the bound and than the last blob", async () => {
    const { time, redis, replica } = await published({ blobAfterBytes: 300, pieceBytes: 100_000 });
    replica.write("x".repeat(1_000));
    await time.advanceAsync(0);
    expect(redis.ran("RENAME")).toBe(2);
    replica.write("y".repeat(500));
    await time.advanceAsync(0);
    expect(redis.ran("RENAME")).toBe(2);
    replica.write("z".repeat(600));
    await time.advanceAsync(0);
    expect(redis.ran("RENAME")).toBe(3);
  });

  // Symptom: a Redis that was out of memory got one more unfinished blob every second, and kept them for ever.
  // Mechanism: a draft was given an end only after its last piece, and nobody removed it when a piece was refused.
  test.each(["RPUSH", "LPUSH", "PEXPIRE", "RENAME"])(
    "whose %s Redis refuses leaves no draft, and all is published anew",
    async (refused) => {
      const { time, redis, replica, announcements } = await published({ blobAfterEntries: 40, pieceBytes: 64 });
      let refusals = 0;
      redis.fault = ([name, key = ""]) => {
        return name === refused && key.includes(":doc:") && ++refusals > (name === "RPUSH" ? 5 : 0)
          ? "refused"
          : undefined;
      };
      writeMany(replica, 0, 41);
      await time.advanceAsync(3_500);
      expect(redis.keys(":next")).toEqual([]);
      redis.fault = () => undefined;
      await time.advanceAsync(1_000);
      expect(announcements).toHaveLength(2);
      expect(redis.keys(":next")).toEqual([]);
    },
  );

  test("that its writer does not live to finish goes when its time is over", async () => {
    const { time, redis } = makeRedis();
    const { writer, replica } = makeWriter(time, { journalTtlMs: 10_000, pieceBytes: 64 });
    writeMany(replica, 0, 10);
    let pieces = 0;
    redis.fault = ([name]) => (name === "RPUSH" && ++pieces === 4 ? "unheard" : undefined);
    writer.attach(redis.session());
    await time.advanceAsync(0);
    writer.detach();
    expect(redis.keys(":next")).toHaveLength(1);
    await time.advanceAsync(10_000);
    expect(redis.keys(":next")).toEqual([]);
  });
});
