import { describe, expect, test } from "vitest";
import { Directory } from "../../src/redis/directory.ts";
import { encodeLease } from "../../src/redis/lease.ts";
import type { RedisLimits } from "../../src/redis/redis-keys.ts";
import type { FakeRedis } from "./fake-redis.ts";
import { FakeReplica } from "./fake-replica.ts";
import { keys, makeRedis, makeShared } from "./part-rig.ts";

function makeDirectory(limits: Partial<RedisLimits> = {}) {
  const { time, redis } = makeRedis();
  const shared = makeShared(time, limits);
  const { origin } = new FakeReplica("me");
  const directory = new Directory({ ...shared, origin: () => origin });
  return { time, redis, directory, session: redis.session(), incidents: shared.incidents };
}

function putLease(redis: FakeRedis, id: string, epoch = 1): void {
  const { origin } = new FakeReplica(id, epoch);
  redis.do("SADD", keys.members, id);
  const text = encodeLease({ origin, beat: 1, isReady: true, isDraining: false, unreachable: [] });
  redis.do("SET", keys.lease(id), text, "PX", "1500");
}

const membersIn = (redis: FakeRedis): string[] => (redis.do("SMEMBERS", keys.members) as Buffer[]).map(String).sort();

describe("a look", () => {
  test("finds the leases of the others, in order of their names, and adds itself", async () => {
    const { redis, directory, session } = makeDirectory();
    for (const id of ["z", "b"]) putLease(redis, id, 3);
    const { leases, journals, announced } = await directory.look(session);
    expect(leases.map(({ origin }) => origin)).toEqual([
      { router: "b", epoch: 3 },
      { router: "z", epoch: 3 },
    ]);
    expect([journals.length, announced]).toEqual([0, undefined]);
    expect(membersIn(redis)).toEqual(["b", "me", "z"]);
  });

  test("in an empty Redis asks for no lease", async () => {
    const { redis, directory, session } = makeDirectory();
    expect((await directory.look(session)).leases).toEqual([]);
    expect(redis.ran("MGET")).toBe(0);
  });

  test("passes over leases that lapsed, and counts those that no router wrote", async () => {
    const { redis, directory, session, incidents } = makeDirectory();
    redis.do("SADD", keys.members, "gone");
    for (const id of ["a", "b"]) putLease(redis, id);
    redis.do("SET", keys.lease("a"), "boo");
    const { leases } = await directory.look(session);
    expect(leases.map(({ origin }) => origin.router)).toEqual(["b"]);
    expect(incidents).toEqual(["lease-invalid"]);
  });

  test("takes as many routers as the bound, and counts that there is one more", async () => {
    const { redis, directory, session, incidents } = makeDirectory({ maxMembers: 2 });
    for (const id of ["a", "b"]) putLease(redis, id);
    expect((await directory.look(session)).leases).toHaveLength(2);
    expect(incidents).toEqual([]);
    putLease(redis, "c");
    expect((await directory.look(session)).leases).toHaveLength(2);
    expect(incidents).toEqual(["too-many-members"]);
  });

  test("finds whose journals stand where, and apart from them what is announced of its own", async () => {
    const { redis, directory, session, incidents } = makeDirectory();
    redis.do("HSET", keys.journals, "a@7", "123");
    redis.do("HSET", keys.journals, "me@1", "55");
    redis.do("HSET", keys.journals, "me@0", "44");
    redis.do("HSET", keys.journals, "with@sign@2", "9");
    const { journals, announced } = await directory.look(session);
    expect(journals).toEqual([
      { origin: { router: "a", epoch: 7 }, version: 123 },
      { origin: { router: "me", epoch: 0 }, version: 44 },
      { origin: { router: "with@sign", epoch: 2 }, version: 9 },
    ]);
    expect(announced).toEqual({ origin: { router: "me", epoch: 1 }, version: 55 });
    expect(incidents).toEqual([]);
  });

  test.each([
    ["nonsense", "1"],
    ["a@", "1"],
    ["@1", "1"],
    ["a@-1", "1"],
    ["a@99999999999999999", "1"],
    ["a@9999999999999999", "1"],
    ["a@1", "x"],
    ["a@1", "1.5"],
    [`${"n".repeat(513)}@1`, "1"],
  ])("counts the announcement %j of %j, which no router makes", async (key, value) => {
    const { redis, directory, session, incidents } = makeDirectory();
    redis.do("HSET", keys.journals, key, value);
    expect((await directory.look(session)).journals).toEqual([]);
    expect(incidents).toEqual(["entry-invalid"]);
  });

  test.each([keys.members, keys.journals])("removes what another program put at %s, and goes on", async (key) => {
    const { redis, directory, session, incidents } = makeDirectory();
    redis.do("SET", key, "mine");
    expect((await directory.look(session)).leases).toEqual([]);
    expect(incidents).toEqual(["key-of-other-type"]);
    await directory.look(session);
    expect(incidents).toHaveLength(1);
    expect(membersIn(redis)).toEqual(["me"]);
  });

  test("fails with whatever else Redis says", async () => {
    const { redis, directory, session } = makeDirectory();
    redis.fault = ([name]) => (name === "HGETALL" ? "refused" : undefined);
    await expect(directory.look(session)).rejects.toThrow("OOM");
  });
});

describe("a sweep", () => {
  const dead = (id: string, version = 1) => ({ origin: new FakeReplica(id).origin, version });
  const none = () => false;

  test("leaves journals that are still there, and announcements of those that are not go", async () => {
    const { redis, directory, session } = makeDirectory();
    const [kept, gone] = [dead("a"), dead("c")];
    redis.do("RPUSH", keys.journal(kept), "x");
    for (const { origin } of [kept, gone]) redis.do("HSET", keys.journals, `${origin.router}@1`, "1");
    await directory.sweep(session, [kept, gone], none);
    expect((await directory.look(session)).journals).toEqual([kept]);
    expect(redis.keys(":journal:")).toHaveLength(1);
  });

  test("removes all of a journal that nobody wants", async () => {
    const { redis, directory, session } = makeDirectory();
    const unwanted = dead("a");
    redis.do("RPUSH", keys.journal(unwanted), "x");
    redis.do("HSET", keys.journals, "a@1", "1");
    await directory.sweep(session, [unwanted], ({ router }) => router === "a");
    expect(redis.keys(":a:")).toEqual([]);
    expect((await directory.look(session)).journals).toEqual([]);
  });

  // Symptom: after a fleet had been replaced many times as a whole, routers with late names saw no others.
  // Mechanism: a name was removed from the set only by who had seen its router live; the names of a fleet that ended all
  // at once stayed for ever, and only the first 256 names are looked at.
  test("removes names without a lease, so that those behind the bound have their turn", async () => {
    const { redis, directory, session } = makeDirectory({ maxMembers: 3 });
    for (const id of ["a1", "a2", "a3", "a4"]) redis.do("SADD", keys.members, id);
    putLease(redis, "b");
    const look = async (): Promise<string[]> =>
      (await directory.look(session)).leases.map(({ origin }) => origin.router);
    expect(await look()).toEqual([]);
    await directory.sweep(session, [], () => false);
    expect(membersIn(redis)).toEqual(["a4", "b", "me"]);
    expect(await look()).toEqual(["b"]);
    await directory.sweep(session, [], () => false);
    expect(membersIn(redis)).toEqual(["b", "me"]);
    const removals = redis.ran("SREM");
    await look();
    await directory.sweep(session, [], () => false);
    expect(redis.ran("SREM")).toBe(removals);
  });
});

// Symptom: a Redis that routers under names of their own come to and leave grew with each of them for ever. Mechanism: of each the
// highest epoch is kept, in a hash from which nothing was taken.
describe("epochs", () => {
  const epochsIn = (redis: FakeRedis): string[] => {
    const list = (redis.do("HGETALL", keys.epochs) as Buffer[]).map(String);
    return list.filter((_, at) => at % 2 === 0).sort();
  };

  test("beyond the bound go, those that began longest ago first, and not those of who lives or has a journal", async () => {
    const { redis, directory, session } = makeDirectory({ maxEpochs: 5 });
    putLease(redis, "old", 3);
    redis.do("HSET", keys.journals, "wrote@4", "1");
    const began = { me: 1, old: 3, wrote: 4, x: 20, y: 9, z: 30 };
    for (const [router, epoch] of Object.entries(began)) redis.do("HSET", keys.epochs, router, String(epoch));
    const tidy = async (): Promise<void> => {
      await directory.look(session);
      await directory.sweep(session, [], () => false);
    };
    await tidy();
    expect(epochsIn(redis)).toEqual(["me", "old", "wrote", "x", "z"]);
    await tidy();
    expect(epochsIn(redis)).toHaveLength(5);
    for (const router of ["p", "q"]) redis.do("HSET", keys.epochs, router, "40");
    await tidy();
    expect(epochsIn(redis)).toEqual(["me", "old", "p", "q", "wrote"]);
  });

  test("of more routers that live than the bound all stay", async () => {
    const { redis, directory, session } = makeDirectory({ maxEpochs: 1 });
    for (const router of ["a", "b", "me"]) {
      if (router !== "me") putLease(redis, router);
      redis.do("HSET", keys.epochs, router, "1");
    }
    await directory.look(session);
    await directory.sweep(session, [], () => false);
    expect(epochsIn(redis)).toEqual(["a", "b", "me"]);
  });
});

test("who is forgotten is looked for no more, until it adds itself again", async () => {
  const { redis, directory, session } = makeDirectory();
  putLease(redis, "a");
  await directory.forget(session, ["a"]);
  expect(membersIn(redis)).toEqual([]);
  const commands = redis.log.length;
  await directory.forget(session, []);
  expect(redis.log).toHaveLength(commands);
});

describe("routers of an earlier version", () => {
  test("are there while one of them holds a lease", async () => {
    const { redis, directory, session } = makeDirectory();
    expect(await directory.hasOlder(session)).toBe(false);
    redis.do("SADD", keys.olderMembers, "a");
    redis.do("SADD", keys.olderMembers, "b");
    expect(await directory.hasOlder(session)).toBe(false);
    redis.do("SET", keys.olderLease("b"), "1 {}", "PX", "1500");
    expect(await directory.hasOlder(session)).toBe(true);
  });

  test("are not what another program keeps under that name", async () => {
    const { redis, directory, session } = makeDirectory();
    redis.do("SET", keys.olderMembers, "mine");
    expect(await directory.hasOlder(session)).toBe(false);
  });
});
