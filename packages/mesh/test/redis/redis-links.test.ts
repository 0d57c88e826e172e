import { createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type Channel, channels, type Link } from "../../src/link/link.ts";
import { defaultRedisLimits, type RedisLimits } from "../../src/redis/redis-keys.ts";
import { decodeRedisMessage, encodeRedisMessage, RedisLinks, type RedisMessage } from "../../src/redis/redis-links.ts";
import { FakeRedis } from "./fake-redis.ts";
import { FakeReplica } from "./fake-replica.ts";
import { keys, makeShared } from "./part-rig.ts";

const originOf = (id: string, epoch = 1) => new FakeReplica(id, epoch).origin;

/** Routers that hear each other through one Redis; frames are texts. */
function makeRouters(ids: readonly string[], limits: Partial<RedisLimits> = {}) {
  const time = createVirtualTime();
  const redis = new FakeRedis(time);
  /** Whether a message does not reach a router. */
  const faults = { lose: (_to: string, _message: RedisMessage): boolean => false };
  const make = (id: string, epoch = 1) => {
    const shared = makeShared(time, limits);
    const reported: string[] = [];
    const up = new Map<string, Link>();
    const heard: string[] = [];
    const links = new RedisLinks({
      ...shared,
      origin: () => originOf(id, epoch),
      observer: {
        up: (link) => {
          up.set(link.peer.origin.router, link);
          reported.push(`up ${link.peer.origin.router}@${link.peer.origin.epoch}`);
        },
        down: (link, why) => {
          if (up.get(link.peer.origin.router) === link) up.delete(link.peer.origin.router);
          reported.push(`down ${link.peer.origin.router}: ${why}`);
        },
        frame: (link, channel, frame) => heard.push(`${link.peer.origin.router} ${channel} ${Buffer.from(frame)}`),
        drained: (link, channel) => reported.push(`drained ${link.peer.origin.router} ${channel}`),
      },
      onGreeting: (from) => reported.push(`greeted by ${from.router}`),
      onGoodbye: (from) => reported.push(`goodbye of ${from.router}`),
      onLook: () => reported.push("look"),
    });
    let current: { end(why: string): void } | undefined;
    const connect = () => {
      current?.end("replaced");
      const session = redis.session((channel, bytes) => {
        if (channel !== keys.all && channel !== keys.inbox(id)) return;
        if (!faults.lose(id, decodeRedisMessage(bytes, 1e6))) links.receive(bytes);
      });
      current = session;
      links.attach(session);
    };
    connect();
    return { id, epoch, links, reported, up, heard, connect, incidents: shared.incidents };
  };
  const routers = ids.map((id) => make(id));
  const settle = async (): Promise<void> => void (await time.advanceAsync(1));
  return { time, redis, faults, make, routers, settle };
}

type Router = ReturnType<ReturnType<typeof makeRouters>["make"]>;

function meet(routers: readonly Router[]): void {
  for (const { links, id } of routers) {
    links.setPeers(routers.filter((other) => other.id !== id).map((other) => originOf(other.id, other.epoch)));
  }
}

const text = (value: string) => new TextEncoder().encode(value);
const say = (from: Router, to: Router, value: string, channel: Channel = "documents") =>
  from.up.get(to.id)?.send(channel, text(value));

async function linked(ids: readonly string[], limits: Partial<RedisLimits> = {}) {
  const rig = makeRouters(ids, limits);
  meet(rig.routers);
  await rig.settle();
  return { ...rig, a: rig.routers[0]!, b: rig.routers[1]! };
}

describe("a link", () => {
  test("is up at both ends once both have seen each other, and carries frames in order", async () => {
    const { a, b, settle } = await linked(["a", "b"]);
    expect([a.reported, b.reported]).toEqual([["up b@1"], ["up a@1"]]);
    for (let at = 0; at < 5; at++) say(a, b, `${at}`, channels[at === 1 ? 2 : 0]);
    await settle();
    expect(b.heard).toEqual(["a load 0", "a documents 1", "a load 2", "a load 3", "a load 4"]);
    expect(b.up.get("a")?.stats).toMatchObject({ receivedFrames: 5 });
    expect(a.links.waitingBytes).toBe(0);
  });

  test("is up when one was greeted before it had seen the other's lease", async () => {
    const { routers, settle } = makeRouters(["a", "b"]);
    const [a, b] = routers as [Router, Router];
    a.links.setPeers([originOf("b")]);
    await settle();
    expect([a.reported, b.reported]).toEqual([["up b@1"], ["greeted by a", "up a@1"]]);
    say(b, a, "x");
    await settle();
    expect(a.heard).toEqual(["b documents x"]);
  });

  test("is greeted again when the first greeting was lost", async () => {
    const lost = makeRouters(["c", "d"]);
    lost.faults.lose = (_, { kind }) => kind === "hello";
    meet(lost.routers);
    await lost.settle();
    expect(lost.routers.map(({ up }) => up.size)).toEqual([0, 0]);
    lost.faults.lose = () => false;
    await lost.time.advanceAsync(defaultRedisLimits.helloAgainMs - 2);
    meet(lost.routers);
    await lost.settle();
    expect(lost.routers.map(({ up }) => up.size)).toEqual([0, 0]);
    await lost.time.advanceAsync(2);
    meet(lost.routers);
    await lost.settle();
    expect(lost.routers.map(({ up }) => up.size)).toEqual([1, 1]);
  });

  test("begins anew at both ends when one missed a frame, and nothing comes out of order", async () => {
    const { a, b, settle, faults } = await linked(["a", "b"]);
    say(a, b, "1");
    await settle();
    faults.lose = (to, message) =>
      to === "b" && message.kind === "frame" && Buffer.from(message.frame).toString() === "2";
    for (const value of ["2", "3", "4"]) say(a, b, value);
    await settle();
    expect(b.heard).toEqual(["a documents 1"]);
    expect(b.incidents).toEqual(["gap"]);
    expect([a.reported, b.reported]).toEqual([
      ["up b@1", "down b: reset", "up b@1"],
      ["up a@1", "down a: reset", "up a@1"],
    ]);
    for (const [from, to] of [
      [a, b],
      [b, a],
    ] as const)
      say(from, to, "on");
    await settle();
    expect([a.heard, b.heard]).toEqual([["b documents on"], ["a documents 1", "a documents on"]]);
  });

  test("that is closed is down at once, and comes back", async () => {
    const { a, b, settle, time } = await linked(["a", "b"]);
    a.up.get("b")?.close("update-refused");
    expect(a.reported).toEqual(["up b@1", "down b: update-refused"]);
    say(b, a, "lost");
    await time.advanceAsync(defaultRedisLimits.helloAgainMs);
    meet([a, b]);
    await settle();
    say(b, a, "back");
    await settle();
    expect(a.heard).toEqual(["b documents back"]);
  });

  test("ends with the session, and is back with the next", async () => {
    const { a, b, settle } = await linked(["a", "b"]);
    a.links.detach();
    expect(a.reported.at(-1)).toBe("down b: reset");
    expect(say(a, b, "x")).toBeUndefined();
    a.connect();
    meet([a, b]);
    await settle();
    say(b, a, "again");
    await settle();
    expect(a.heard).toEqual(["b documents again"]);
  });

  test("of an earlier epoch is replaced, and one of an earlier epoch is not taken", async () => {
    const { a, b, settle, make } = await linked(["a", "b"]);
    const later = make("b", 2);
    later.links.setPeers([originOf("a")]);
    await settle();
    expect(a.reported).toEqual(["up b@1", "down b: replaced", "greeted by b", "up b@2"]);
    b.links.setPeers([]);
    b.links.setPeers([originOf("a")]);
    await settle();
    expect(a.up.get("b")?.peer.origin.epoch).toBe(2);
  });

  test("to a router that is gone is down", async () => {
    const { a } = await linked(["a", "b"]);
    a.links.setPeers([]);
    expect(a.reported).toEqual(["up b@1", "down b: reset"]);
    expect(a.links.links()).toEqual([]);
  });
});

describe("what is for all", () => {
  const tellAll = (from: Router, value: string): void => {
    const frame = text(value);
    for (const link of from.up.values()) link.send("load", frame);
  };

  test("is published once, and heard by each", async () => {
    const { routers, settle, redis, a } = await linked(["a", "b", "c", "d"]);
    const before = redis.published.length;
    tellAll(a, "x");
    await settle();
    expect(redis.published.length - before).toBe(1);
    expect(routers.map(({ heard }) => heard)).toEqual([[], ["a load x"], ["a load x"], ["a load x"]]);
  });

  test("is not heard by a router that came after it was sent", async () => {
    const { routers, settle, a, make } = await linked(["a", "b", "c"]);
    tellAll(a, "early");
    const late = make("d");
    meet([...routers, late]);
    await settle();
    tellAll(a, "late");
    await settle();
    expect(late.heard).toEqual(["a load late"]);
    expect(routers[2]!.heard).toEqual(["a load early", "a load late"]);
  });

  test("has a number of its own, so that who missed one begins anew and the others go on", async () => {
    const { routers, settle, a, b, faults } = await linked(["a", "b", "c"]);
    faults.lose = (to, { kind }) => to === "b" && kind === "shared";
    tellAll(a, "1");
    await settle();
    faults.lose = () => false;
    tellAll(a, "2");
    await settle();
    expect(b.heard).toEqual([]);
    expect(b.reported).toContain("down a: reset");
    tellAll(a, "3");
    await settle();
    expect(b.heard).toEqual(["a load 3"]);
    expect(routers[2]!.heard).toEqual(["a load 1", "a load 2", "a load 3"]);
    expect(routers[2]!.reported.filter((line) => line.startsWith("down"))).toEqual([]);
  });
});

describe("what waits for Redis", () => {
  test("is bounded on each channel; one byte more is dropped, and room is told", async () => {
    const queueBytes = { ...defaultRedisLimits.queueBytes, documents: 6 };
    const { a, b, settle } = await linked(["a", "b"], { queueBytes });
    expect([say(a, b, "123"), say(a, b, "456"), say(a, b, "7")]).toEqual([true, true, false]);
    expect(say(a, b, "7", "load")).toBe(true);
    expect(a.up.get("b")?.waitingBytes("documents")).toBe(6);
    expect(a.links.waitingBytes).toBe(7);
    await settle();
    expect(a.reported).toEqual(["up b@1", "drained b documents"]);
    expect(say(a, b, "8")).toBe(true);
    await settle();
    expect(b.heard).toEqual(["a documents 123", "a documents 456", "a load 7", "a documents 8"]);
    expect(a.incidents).toEqual(["message-dropped"]);
  });
});

test("a goodbye and a call to look reach all", async () => {
  const { a, b } = await linked(["a", "b"]);
  await a.links.tellAll("look");
  await a.links.tellAll("goodbye");
  expect(b.reported.slice(1)).toEqual(["look", "goodbye of a"]);
});

test("one router more than the bound is not linked", async () => {
  const { routers, settle } = makeRouters(["a", "b", "c"], { maxMembers: 1 });
  const [a, b, c] = routers as [Router, Router, Router];
  b.links.setPeers([originOf("a")]);
  await settle();
  c.links.setPeers([originOf("a")]);
  await settle();
  expect([...a.up.keys()]).toEqual(["b"]);
});

describe("messages", () => {
  const from = originOf("a", 3);
  const frame = text("body");
  const all: RedisMessage[] = [
    { kind: "hello", from, link: 7, answers: 200 },
    { kind: "ready", from, link: 7, nextShared: 300 },
    { kind: "frame", from, link: 7, counter: 200, channel: "bulk", frame },
    { kind: "shared", from, counter: 0, channel: "notes", frame },
    { kind: "goodbye", from },
    { kind: "look", from },
  ];

  test.each(all)("come back as they were: $kind", (message) => {
    const decoded = decodeRedisMessage(encodeRedisMessage(message), 100);
    expect("frame" in decoded ? { ...decoded, frame: new Uint8Array(decoded.frame) } : decoded).toEqual(message);
  });

  test("that are cut, longer, or of another version are none", () => {
    for (const message of all) {
      const bytes = encodeRedisMessage(message);
      const isFrame = "frame" in message;
      for (let length = 0; length < bytes.length - (isFrame ? frame.length : 0); length++) {
        expect(() => decodeRedisMessage(bytes.subarray(0, length), 100)).toThrow(RangeError);
      }
      if (!isFrame) expect(() => decodeRedisMessage(Buffer.concat([bytes, bytes]), 100)).toThrow(RangeError);
      expect(decodeRedisMessage(bytes, bytes.length)).toBeDefined();
      expect(() => decodeRedisMessage(bytes, bytes.length - 1)).toThrow(RangeError);
      expect(() => decodeRedisMessage(Uint8Array.of(9, ...bytes.subarray(1)), 100)).toThrow(RangeError);
      expect(() => decodeRedisMessage(Uint8Array.of(1, 6, ...bytes.subarray(2)), 100)).toThrow(RangeError);
    }
    const membership = encodeRedisMessage({ kind: "shared", from, counter: 0, channel: "membership", frame });
    expect(() => decodeRedisMessage(membership, 100)).toThrow(RangeError);
  });
});

// What a link promises, against the plain list of what was sent: each end hears, of each link, a beginning of what the other
// end sent on it, in order; and once nothing is lost any more all links are up and carry what is sent.
test.each(Array.from({ length: 40 }, (_, seed) => seed))(
  "whatever is lost, nothing comes twice, late or in part (seed %d)",
  async (seed) => {
    const random = createSeededRandom(seed);
    const rig = makeRouters(["a", "b", "c"]);
    const { routers, faults, time, settle } = rig;
    faults.lose = () => random.float() < 0.05;
    let sent = 0;
    for (let step = 0; step < 60; step++) {
      if (step % 10 === 0) meet(routers);
      const from = routers[random.integer(3)]!;
      const frame = text(String(++sent));
      if (random.float() < 0.5) for (const link of from.up.values()) link.send("documents", frame);
      else [...from.up.values()][random.integer(Math.max(1, from.up.size))]?.send("documents", frame);
      if (random.float() < 0.05) {
        from.links.detach();
        from.connect();
      }
      await time.advanceAsync(random.integer(300));
    }
    for (const { heard } of routers) {
      for (const id of ["a", "b", "c"]) {
        const numbers = heard.filter((line) => line.startsWith(`${id} `)).map((line) => Number(line.split(" ")[2]));
        expect(numbers).toEqual([...new Set(numbers)].sort((one, other) => one - other));
      }
    }
    faults.lose = () => false;
    for (let round = 0; round < 3; round++) {
      await time.advanceAsync(defaultRedisLimits.helloAgainMs);
      meet(routers);
      for (const router of routers) for (const link of router.up.values()) link.send("documents", text("probe"));
      await settle();
    }
    for (const router of routers) router.heard.length = 0;
    for (const router of routers) for (const link of router.up.values()) link.send("documents", text("end"));
    await settle();
    expect(routers.map(({ heard }) => [...heard].sort())).toEqual([
      ["b documents end", "c documents end"],
      ["a documents end", "c documents end"],
      ["a documents end", "b documents end"],
    ]);
  },
);
