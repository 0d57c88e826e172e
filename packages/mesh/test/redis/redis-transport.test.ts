import type { Connection } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { RedisLimits } from "../../src/redis/redis-keys.ts";
import { decodeRedisMessage, encodeRedisMessage, RedisTransport } from "../../src/redis/redis-transport.ts";
import { listen } from "../transport/transport-suite.ts";
import { FakeRedis } from "./fake-redis.ts";
import { keys, makeShared } from "./part-rig.ts";

/** Two transports with one connection between them, and a Redis that does with messages what a test says. */
async function makePair(limits: Partial<RedisLimits> = {}) {
  const time = createVirtualTime();
  const redis = new FakeRedis(time);
  const rig = { deliver: (bytes: Buffer): readonly Buffer[] => [bytes] };
  const make = (name: string) => {
    const shared = makeShared(time, limits);
    const address = `${name}.redis:1`;
    const transport = new RedisTransport({ ...shared, address, isGone: () => true });
    const accepted: [Connection, ReturnType<typeof listen>][] = [];
    transport.onConnection((connection) => {
      const heard = listen();
      accepted.push([connection, heard]);
      return heard;
    });
    let session: ReturnType<FakeRedis["session"]> | undefined;
    const attach = (): void => {
      session = redis.session((channel, message) => {
        if (channel === keys.inbox(address)) for (const bytes of rig.deliver(message)) transport.receive(bytes);
      });
      transport.attach(session);
    };
    const detach = (): void => {
      session?.end("the test ends it");
      transport.detach();
    };
    return { transport, accepted, attach, detach, address, incidents: shared.incidents };
  };
  const [a, b] = [make("a"), make("b")];
  for (const { transport, attach } of [a, b]) {
    await transport.start();
    attach();
  }
  const dial = async () => {
    const atDialer = listen();
    const opened: Connection[] = [];
    a.transport.dial(b.address, { ...atDialer, opened: (connection) => void opened.push(connection) });
    await time.advanceAsync(0);
    const dialed = opened[0];
    dialed?.trust();
    b.accepted.at(-1)?.[0].trust();
    return { dialed: dialed!, atDialer };
  };
  return { time, rig, a, b, dial, ...(await dial()) };
}

const isFrame = (bytes: Buffer): boolean => decodeRedisMessage(bytes, 1_000_000).kind === "frame";

test.each([
  ["lost", (): Buffer[] => []],
  ["delivered twice", (bytes: Buffer) => [bytes, bytes]],
])("a message that Redis has %s ends the connection at both ends, and the next one works", async (_, fault) => {
  const { time, rig, a, b, dial, dialed, atDialer } = await makePair();
  const [, atAcceptor] = b.accepted[0]!;
  dialed.send(Uint8Array.of(1));
  await time.advanceAsync(0);
  rig.deliver = (bytes) => (isFrame(bytes) ? fault(bytes) : [bytes]);
  dialed.send(Uint8Array.of(2));
  await time.advanceAsync(0);
  rig.deliver = (bytes) => [bytes];
  dialed.send(Uint8Array.of(3));
  await time.advanceAsync(1);
  expect([atDialer.ends, atAcceptor.ends]).toMatchObject([[{ kind: "reset" }], [{ kind: "reset" }]]);
  expect(atAcceptor.frames.map(([first]) => first)).not.toContain(3);
  expect([...a.incidents, ...b.incidents]).toEqual(["gap"]);
  const next = await dial();
  next.dialed.send(Uint8Array.of(4));
  await time.advanceAsync(0);
  expect(b.accepted[1]![1].frames.map((frame) => [...frame])).toEqual([[4]]);
});

test("messages that arrive in another order end the connection", async () => {
  const { time, rig, b, dialed } = await makePair();
  const kept: Buffer[] = [];
  rig.deliver = (bytes) => {
    if (!isFrame(bytes)) return [bytes];
    kept.push(bytes);
    return kept.length < 2 ? [] : [kept[1]!, kept[0]!];
  };
  dialed.send(Uint8Array.of(1));
  dialed.send(Uint8Array.of(2));
  await time.advanceAsync(1);
  expect(b.accepted[0]![1]).toMatchObject({ frames: [], ends: [{ kind: "reset" }] });
});

test("what is in flight is bounded until the other end has read it, and the rest then follows", async () => {
  const { time, rig, b, dialed, atDialer } = await makePair({ windowBytes: 4_000 });
  const held: Buffer[] = [];
  rig.deliver = (bytes) => {
    if (!isFrame(bytes)) return [bytes];
    held.push(bytes);
    return [];
  };
  for (let at = 0; at < 200; at++) dialed.send(new Uint8Array(1_000));
  await time.advanceAsync(1);
  expect(held).toHaveLength(4);
  expect([dialed.bufferedBytes, atDialer.drains]).toEqual([196_000, 0]);
  rig.deliver = (bytes) => [bytes];
  for (const bytes of held) b.transport.receive(bytes);
  await time.advanceAsync(1);
  expect(b.accepted[0]![1].frames).toHaveLength(200);
  expect([dialed.bufferedBytes, atDialer.drains]).toEqual([0, 1]);
});

test("all connections end with the session, and a dial waits for the next one", async () => {
  const { time, a, b, dial, atDialer } = await makePair();
  a.detach();
  await time.advanceAsync(1);
  expect(atDialer.ends).toMatchObject([{ kind: "reset" }]);
  const waiting = listen();
  let isOpen = false;
  a.transport.dial(b.address, {
    ...waiting,
    opened() {
      isOpen = true;
    },
  });
  await time.advanceAsync(500);
  expect([isOpen, waiting.ends]).toEqual([false, []]);
  a.attach();
  await time.advanceAsync(1);
  expect([isOpen, waiting.ends]).toEqual([true, []]);
  await dial();
  expect(b.accepted).toHaveLength(3);
});

test("the end that did not see the session end learns of it with its next message", async () => {
  const { time, a, b } = await makePair();
  a.detach();
  a.attach();
  const [accepted, atAcceptor] = b.accepted[0]!;
  expect(atAcceptor.ends).toEqual([]);
  accepted.send(Uint8Array.of(1));
  await time.advanceAsync(1);
  expect(atAcceptor.ends).toMatchObject([{ kind: "reset" }]);
});

test("a dial without an answer ends in time", async () => {
  const { time, rig, dial } = await makePair({ connectTimeoutMs: 700 });
  rig.deliver = () => [];
  const { atDialer } = await dial();
  await time.advanceAsync(701);
  expect(atDialer.ends).toHaveLength(1);
});

test("one connection more than there may be is reset, and those that are there go on", async () => {
  const { time, b, dialed, dial } = await makePair({ maxMembers: 1 });
  for (let at = 1; at < 4; at++) await dial();
  const beyond = await dial();
  await time.advanceAsync(1);
  expect(beyond.atDialer.ends).toMatchObject([{ kind: "reset" }]);
  expect(b.accepted).toHaveLength(4);
  dialed.send(Uint8Array.of(7));
  await time.advanceAsync(0);
  expect(b.accepted[0]![1].frames).toHaveLength(1);
});

test("a message that nobody can read is counted, and ends nothing", async () => {
  const { time, b, dialed } = await makePair({ maxFrameBytes: 100 });
  const message = { kind: "reset", from: "c", connection: 1, isDialer: true, counter: 0 } as const;
  for (const bytes of [Uint8Array.of(9), encodeRedisMessage({ ...message, body: new Uint8Array(1_000) })]) {
    b.transport.receive(bytes);
  }
  b.transport.receive(encodeRedisMessage({ ...message, body: new Uint8Array() }));
  expect(b.incidents).toEqual(["message-invalid", "message-invalid"]);
  dialed.send(Uint8Array.of(1));
  await time.advanceAsync(0);
  expect(b.accepted[0]![1].frames).toHaveLength(1);
});

test("a message at its bounds is read; past one, cut, or of no known version, kind or side it is none", () => {
  const message = { kind: "credit", from: "x".repeat(256), connection: 2 ** 53 - 1, isDialer: true } as const;
  const whole = { ...message, counter: 7, body: new Uint8Array(0) };
  const bytes = encodeRedisMessage(whole);
  const decode = (from: Uint8Array) => decodeRedisMessage(from, 1_000);
  expect(decode(bytes)).toEqual(whole);
  const side = bytes.length - 2;
  for (const [at, value] of [
    [0, 2],
    [1, 6],
    [side, 2],
  ] as const)
    expect(() => decode(bytes.with(at, value)), `${value} at ${at}`).toThrow(RangeError);
  for (let length = 0; length < bytes.length; length++)
    expect(() => decode(bytes.subarray(0, length)), `${length} bytes`).toThrow(RangeError);
  expect(() => decode(encodeRedisMessage({ ...whole, from: "x".repeat(257) }))).toThrow(RangeError);
  expect(() => decode(encodeRedisMessage({ ...whole, body: new Uint8Array(1_321) }))).toThrow(RangeError);
});

test.each([
  ["credit", [255]],
  ["close", [1, 3, 97]],
  ["close", [1, 129, 2, ...Array(257).fill(97)]],
] as const)("a %s of which the body cannot be read breaks the connection off", async (kind, body) => {
  const { time, a, b, atDialer } = await makePair();
  b.transport.receive(
    encodeRedisMessage({
      kind,
      from: a.address,
      connection: 1,
      isDialer: true,
      counter: 1,
      body: Uint8Array.from(body),
    }),
  );
  await time.advanceAsync(1);
  expect(b.accepted[0]![1].ends).toMatchObject([{ kind: "error", code: 1002 }]);
  expect(atDialer.ends).toMatchObject([{ kind: "closed", code: 1002 }]);
});
