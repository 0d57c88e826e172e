import { expect, test } from "vitest";
import { decodeLease, encodeLease, LeaseKeeper } from "../../src/redis/lease.ts";
import type { RedisLimits } from "../../src/redis/redis-keys.ts";
import type { FakeRedis } from "./fake-redis.ts";
import { FakeReplica } from "./fake-replica.ts";
import { keys, makeRedis, makeShared } from "./part-rig.ts";

function makeKeeper(
  { time, redis }: ReturnType<typeof makeRedis>,
  {
    id = "a",
    epoch = 1,
    region,
    ...limits
  }: { id?: string; epoch?: number; region?: string } & Partial<RedisLimits> = {},
) {
  const replica = new FakeReplica(id, epoch);
  let isReady = false;
  const keeper = new LeaseKeeper({ ...makeShared(time, limits), replica, region, isReady: () => isReady });
  return {
    replica,
    keeper,
    session: redis.session(),
    becomeReady: () => {
      isReady = true;
    },
  };
}

const leaseOf = (redis: FakeRedis, id = "a") => {
  const text = redis.do("GET", keys.lease(id));
  return text === null ? undefined : decodeLease(id, String(text));
};

test("a lease says what its router says of itself, and its beat rises with every renewal", async () => {
  const rig = makeRedis();
  const { keeper, session, becomeReady } = makeKeeper(rig);
  await keeper.claim(session);
  expect(leaseOf(rig.redis)).toMatchObject({ beat: 1, isReady: false, isDraining: false, unreachable: [] });
  becomeReady();
  keeper.isDraining = true;
  keeper.unreachable = ["e#0"];
  expect(await keeper.renew(session)).toBe("held");
  expect(leaseOf(rig.redis)).toMatchObject({ beat: 2, isReady: true, isDraining: true, unreachable: ["e#0"] });
});

test("a lease has the router's region, of which earlier versions write none, and none that is too long", async () => {
  const rig = makeRedis();
  const { keeper, session, replica } = makeKeeper(rig, { region: "r".repeat(128) });
  await keeper.claim(session);
  const lease = leaseOf(rig.redis)!;
  expect(lease.region).toBe("r".repeat(128));
  const { origin } = replica;
  for (const region of ["r".repeat(129), 7]) {
    const text = encodeLease({ ...lease, origin, region: region as string });
    expect(() => decodeLease("a", text)).toThrow(RangeError);
  }
  expect(encodeLease({ ...lease, region: undefined })).not.toContain("region");
});

test("a lease lasts as long as the limit says, and one that lapsed is taken anew", async () => {
  const rig = makeRedis();
  const { keeper, session } = makeKeeper(rig);
  await keeper.claim(session);
  await rig.time.advanceAsync(1_499);
  expect(leaseOf(rig.redis)).toBeDefined();
  expect(await keeper.renew(session)).toBe("held");
  await rig.time.advanceAsync(1_500);
  expect(leaseOf(rig.redis)).toBeUndefined();
  expect(await keeper.renew(session)).toBe("anew");
});

test("the epoch rises above any that was known, and is made known", async () => {
  const rig = makeRedis();
  rig.redis.do("HSET", keys.epochs, "a", "41");
  const { keeper, session, replica } = makeKeeper(rig, { epoch: 7 });
  await keeper.claim(session);
  expect(replica.origin.epoch).toBe(42);
  expect(String(rig.redis.do("HGET", keys.epochs, "a"))).toBe("42");
});

test.each(["40", "x", "1e400", "-3"])("the known epoch %j changes nothing for one of 41", async (known) => {
  const rig = makeRedis();
  rig.redis.do("HSET", keys.epochs, "a", known);
  const { keeper, session, replica } = makeKeeper(rig, { epoch: 41 });
  await keeper.claim(session);
  expect(replica.origin.epoch).toBe(41);
});

test("what an earlier epoch left is waited for, to its end", async () => {
  const rig = makeRedis();
  const before = makeKeeper(rig, { epoch: 5 });
  await before.keeper.claim(before.session);
  await rig.time.advanceAsync(400);
  const after = makeKeeper(rig, { epoch: 6 });
  let hasClaimed = false;
  void after.keeper.claim(after.session).then(() => {
    hasClaimed = true;
  });
  await rig.time.advanceAsync(1_050);
  expect(hasClaimed).toBe(false);
  await rig.time.advanceAsync(50);
  expect(hasClaimed).toBe(true);
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(6);
});

test("one that is renewed meanwhile is that of another router: the newcomer is refused soon", async () => {
  const rig = makeRedis();
  const first = makeKeeper(rig, { epoch: 5 });
  await first.keeper.claim(first.session);
  rig.time.scheduler.every(500, () => void first.keeper.renew(first.session));
  const second = makeKeeper(rig, { epoch: 6 });
  let error: unknown;
  void second.keeper.claim(second.session).catch((thrown: unknown) => {
    error = thrown;
  });
  await rig.time.advanceAsync(600);
  expect(error).toMatchObject({ code: "mesh_rejected", param: "mesh.router-id" });
  expect(String(error)).toContain('"a"');
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(5);
});

test("one that nobody renews and that does not lapse is given up in the time of a lease and two renewals", async () => {
  const rig = makeRedis();
  const stuck = { epoch: 5, beat: 1, isReady: true, isDraining: false, unreachable: [] };
  const origin = new FakeReplica("a", 5).origin;
  rig.redis.do("SET", keys.lease("a"), encodeLease({ ...stuck, origin }));
  const { keeper, session } = makeKeeper(rig, { epoch: 6 });
  let isRefused = false;
  void keeper.claim(session).catch(() => {
    isRefused = true;
  });
  await rig.time.advanceAsync(2_499);
  expect(isRefused).toBe(false);
  await rig.time.advanceAsync(51);
  expect(isRefused).toBe(true);
});

test.each(["boo", "x {}", ""])("the lease %j that no router wrote is overwritten", async (text) => {
  const rig = makeRedis();
  rig.redis.do("SET", keys.lease("a"), text);
  const { keeper, session } = makeKeeper(rig);
  await keeper.claim(session);
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(1);
});

test("a lease is given back only by the epoch that has it", async () => {
  const rig = makeRedis();
  const [before, after] = [makeKeeper(rig, { epoch: 5 }), makeKeeper(rig, { epoch: 6 })];
  await before.keeper.claim(before.session);
  await rig.time.advanceAsync(1_500);
  await after.keeper.claim(after.session);
  await before.keeper.release(before.session);
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(6);
  await after.keeper.release(after.session);
  expect(leaseOf(rig.redis)).toBeUndefined();
  const commands = rig.redis.log.length;
  await after.keeper.release(after.session);
  expect(rig.redis.log).toHaveLength(commands);
});

test("when the epoch changes the old epoch's lease goes, and the new one's takes its place", async () => {
  const rig = makeRedis();
  const { keeper, session, replica } = makeKeeper(rig, { epoch: 5 });
  await keeper.claim(session);
  replica.renewEpoch(9);
  expect(await keeper.renew(session)).toBe("anew");
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(10);
});

// Symptom: a router that was stopped while another epoch of it came and went was no member for the others for seconds, and
// the highest epoch known of it went down again.
// Mechanism: an epoch that had held the lease did not look at the known epochs before it took the lease again.
test("who lost the lease to a later epoch and gets it back rises above that epoch", async () => {
  const rig = makeRedis();
  const [early, late] = [makeKeeper(rig, { epoch: 5 }), makeKeeper(rig, { epoch: 6 })];
  await early.keeper.claim(early.session);
  await rig.time.advanceAsync(1_500);
  await late.keeper.claim(late.session);
  expect(await early.keeper.renew(early.session)).toBe("taken");
  await rig.time.advanceAsync(1_500);
  expect(await early.keeper.renew(early.session)).toBe("anew");
  expect(leaseOf(rig.redis)!.origin.epoch).toBe(7);
  expect(String(rig.redis.do("HGET", keys.epochs, "a"))).toBe("7");
});
