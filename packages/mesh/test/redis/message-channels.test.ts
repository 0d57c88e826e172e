import { describe, expect, test } from "vitest";
import {
  type ControlMessage,
  encodeControlMessage,
  encodeLoadEnvelope,
  MessageChannels,
} from "../../src/redis/message-channels.ts";
import type { RedisLimits } from "../../src/redis/redis-limits.ts";
import { FakeReplica } from "./fake-replica.ts";
import { keys, makeRedis, makeShared } from "./part-rig.ts";

function makeChannels(limits: Partial<RedisLimits> = {}) {
  const { time, redis } = makeRedis();
  const shared = makeShared(time, limits);
  const replica = new FakeReplica("me", 5);
  const heard: ControlMessage[] = [];
  const gauges: string[] = [];
  const channels = new MessageChannels({
    ...shared,
    origin: () => replica.origin,
    load: replica.load,
    notes: replica.notes,
    onControl: (message) => void heard.push(message),
    onGauges: ({ router }) => void gauges.push(router),
  });
  const sent = (channel: string): number => redis.published.filter((one) => one.channel === channel).length;
  return { time, redis, channels, replica, heard, gauges, sent, session: redis.session(), incidents: shared.incidents };
}

const hello = (id: string, epoch = 1): Buffer =>
  Buffer.from(encodeControlMessage({ kind: "hello", from: new FakeReplica(id, epoch).origin }));

const gaugesOf = (id: string, value: number): Buffer => {
  const sender = new FakeReplica(id);
  const frames: Uint8Array[] = [];
  sender.load.onFrame((frame) => frames.push(frame));
  sender.setLoad(value);
  return Buffer.from(encodeLoadEnvelope(sender.origin, frames[0]!));
};

test("gauges of one router in the envelope of another one are not taken", () => {
  const { channels, replica } = makeChannels();
  const frame = new FakeReplica("other", 2 ** 48).load.fullFrames()[0]!;
  for (const sender of [new FakeReplica("liar"), new FakeReplica("other", 1)]) {
    channels.receive(keys.load, Buffer.from(encodeLoadEnvelope(sender.origin, frame)));
  }
  expect(replica.loads.get("other")).toBeUndefined();
  channels.receive(keys.load, gaugesOf("other", 3));
  expect(replica.loads.get("other")).toBe(3);
});

describe("messages that go out", () => {
  test("begin with all gauges, and go nowhere without a session", async () => {
    const { time, channels, replica, session, sent } = makeChannels();
    replica.setLoad(3);
    channels.publish({ kind: "hello", from: replica.origin });
    await time.advanceAsync(0);
    expect(sent(keys.load)).toBe(0);
    channels.attach(session);
    channels.publish({ kind: "hello", from: replica.origin });
    await time.advanceAsync(0);
    expect([sent(keys.load), sent(keys.control)]).toEqual([1, 1]);
    channels.detach();
    replica.setLoad(4);
    await time.advanceAsync(0);
    expect(sent(keys.load)).toBe(1);
  });

  test("wait as many as the bound; one more is dropped, and gauges are owed until half of the room is free", async () => {
    const { time, channels, replica, session, sent, incidents } = makeChannels({ maxPublishing: 4 });
    channels.attach(session);
    for (let value = 1; value <= 3; value++) replica.setLoad(value);
    expect(incidents).toEqual([]);
    replica.setLoad(4);
    channels.publish({ kind: "hello", from: replica.origin });
    expect(incidents).toEqual(["message-dropped", "message-dropped"]);
    await time.advanceAsync(0);
    expect([sent(keys.load), sent(keys.control)]).toEqual([5, 0]);
  });

  test("that answer several newcomers within ten milliseconds are one", async () => {
    const { time, channels, session, sent } = makeChannels();
    channels.attach(session);
    await time.advanceAsync(0);
    for (let at = 0; at < 5; at++) channels.sendAllGaugesSoon();
    await time.advanceAsync(9);
    expect(sent(keys.load)).toBe(1);
    await time.advanceAsync(1);
    expect(sent(keys.load)).toBe(2);
    channels.sendAllGaugesSoon();
    await time.advanceAsync(10);
    expect(sent(keys.load)).toBe(3);
  });

  test("that Redis refuses are counted, and the caller who waits for one hears no error", async () => {
    const { time, redis, channels, replica, session, incidents } = makeChannels();
    channels.attach(session);
    await time.advanceAsync(0);
    redis.fault = () => "refused";
    await channels.publishNow({ kind: "goodbye", from: replica.origin });
    expect(incidents).toEqual(["message-dropped"]);
  });

  test("end with the stop, those that were due included", async () => {
    const { time, channels, replica, session, sent } = makeChannels();
    channels.attach(session);
    await time.advanceAsync(0);
    channels.sendAllGaugesSoon();
    channels.stop();
    replica.setLoad(9);
    await channels.publishNow({ kind: "goodbye", from: replica.origin });
    await time.advanceAsync(100);
    expect([sent(keys.load), sent(keys.control)]).toEqual([1, 0]);
    expect(time.pendingCount).toBe(0);
  });

  test("count the bytes that they have", async () => {
    const { time, channels, replica, session } = makeChannels();
    channels.attach(session);
    await time.advanceAsync(0);
    const before = channels.sentBytes;
    const message = { kind: "hello", from: replica.origin } as const;
    channels.publish(message);
    expect(channels.sentBytes - before).toBe(encodeControlMessage(message).length);
  });
});

describe("messages that come in", () => {
  test("are told, those of the own router left out: of gauges all, of the rest those of this life", () => {
    const { channels, heard, gauges, replica } = makeChannels();
    channels.receive(keys.control, hello("me", 5));
    channels.receive(keys.control, hello("me", 4));
    channels.receive(keys.control, hello("a"));
    channels.receive(keys.load, gaugesOf("me", 1));
    channels.receive(keys.load, gaugesOf("b", 7));
    expect(heard.map(({ from }) => [from.router, from.epoch])).toEqual([
      ["me", 4],
      ["a", 1],
    ]);
    expect(gauges).toEqual(["b"]);
    expect(replica.loads).toEqual(new Map([["b", 7]]));
  });

  test("count as all gauges of a router only where they are", () => {
    const { channels, gauges, replica } = makeChannels();
    replica.untold.add("b");
    channels.receive(keys.load, gaugesOf("b", 7));
    expect([gauges, replica.loads.get("b")]).toEqual([[], 7]);
    replica.untold.clear();
    channels.receive(keys.load, gaugesOf("b", 8));
    expect(gauges).toEqual(["b"]);
  });

  test("are counted when they cannot be read, each on its own account", () => {
    const { channels, heard, incidents } = makeChannels({ maxMessageBytes: hello("a").length });
    channels.receive(keys.control, hello("a"));
    channels.receive(keys.control, hello("aa"));
    channels.receive(keys.load, Buffer.of(1, 1, 97, 1, 255));
    channels.receive(keys.load, Buffer.alloc(0));
    expect(incidents).toEqual(["message-invalid", "load-invalid", "load-invalid"]);
    expect(heard).toHaveLength(1);
  });

  test("have their bytes counted for as many routers as the bound, until one is forgotten", () => {
    const { channels } = makeChannels({ maxMembers: 2 });
    const of = (id: string): number => channels.receivedBytes(new FakeReplica(id).origin);
    for (const id of ["a", "b", "c"]) channels.receive(keys.control, hello(id));
    channels.receive(keys.load, gaugesOf("b", 1));
    expect([of("a"), of("b"), of("c")]).toEqual([hello("a").length, hello("b").length + gaugesOf("b", 1).length, 0]);
    channels.forget("a");
    channels.receive(keys.control, hello("c"));
    expect([of("a"), of("c")]).toEqual([0, hello("c").length]);
  });
});

describe("notes", () => {
  const frameOf = (id: string, text: string): Buffer => {
    const sender = new FakeReplica(id);
    const frames: Uint8Array[] = [];
    sender.notes.onFrame((frame) => frames.push(frame));
    sender.notes.post(text);
    return Buffer.from(frames[0]!);
  };

  test("go out on a channel of their own: at once, whole with a session and whenever somebody comes", async () => {
    const { time, channels, replica, session, sent } = makeChannels();
    replica.notes.post("one");
    expect(sent(keys.notes)).toBe(0);
    channels.attach(session);
    await time.advanceAsync(0);
    expect(sent(keys.notes)).toBe(1);
    replica.notes.post("another");
    await time.advanceAsync(0);
    expect(sent(keys.notes)).toBe(2);
    channels.sendAllGaugesSoon();
    await time.advanceAsync(10);
    expect(sent(keys.notes)).toBe(3);
    channels.stop();
    replica.notes.post("yet another");
    await time.advanceAsync(0);
    expect(sent(keys.notes)).toBe(3);
  });

  test("are dropped and counted when too much waits", () => {
    const { channels, replica, session, incidents } = makeChannels({ maxPublishing: 2 });
    channels.attach(session);
    replica.notes.post("one");
    expect(incidents).toEqual([]);
    replica.notes.post("another");
    expect(incidents).toEqual(["message-dropped"]);
  });

  test("that come in are told, those of the own router and of other kinds left out; what cannot be read is counted", () => {
    const { channels, replica, incidents } = makeChannels();
    channels.receive(keys.notes, frameOf("a", "learned"));
    channels.receive(keys.notes, frameOf("me", "mine"));
    channels.receive(keys.notes, Buffer.from('{"router":"b","epoch":1}'));
    channels.receive(keys.notes, Buffer.of(200));
    expect([...replica.notes.heard]).toEqual([["a@1", "learned"]]);
    expect(incidents).toEqual(["note-invalid"]);
  });
});
