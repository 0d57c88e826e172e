import { silentLogger } from "@espalier/core";
import { createRecordingLogger } from "@espalier/testing";
import { expect, test } from "vitest";
import type { SubscriberObserver } from "../../src/events/event-transport.ts";
import { createSharedBinds } from "../../src/events/shared-binds.ts";
import { createFakeTransport, liveFrames } from "./fake-transport.ts";
import { storedPayload } from "./messages.ts";

const endpoint = "tcp://*:5557";

function createObserver(): SubscriberObserver & { readonly log: string[] } {
  const log: string[] = [];
  return {
    log,
    onMessage: (frames) => log.push(`${frames[0]}`),
    onBacklog: (hasBacklog) => log.push(hasBacklog ? "unread" : "read"),
    onUp: () => log.push("up"),
    onDown: () => log.push("down"),
    onFailed: (error) => log.push(`failed: ${error instanceof Error ? error.message : error}`),
  };
}

function createShared(logger = silentLogger) {
  const transport = createFakeTransport();
  const shared = createSharedBinds(transport, logger);
  const open = (topic: string) => {
    const observer = createObserver();
    const socket = shared.openSubscriber({ endpoint, mode: "bind", topic, observer });
    return { ...observer, socket };
  };
  return { transport, shared, open };
}

test("bound mode, two publishers: one socket, each topic goes to its own reader", () => {
  const { transport, open } = createShared();
  const [a, b] = [open("kv@a"), open("kv@b")];
  expect(transport.subscribers.map(({ options }) => options)).toMatchObject([{ endpoint, mode: "bind", topic: "" }]);
  const { tell } = transport.subscribers[0]!;
  tell.onUp();
  for (const topic of ["kv@a", "kv@b", "kv@a", "kv@", "kv@ab"]) tell.onMessage(liveFrames(0, storedPayload(1), topic));
  tell.onDown();
  expect(a.log).toEqual(["up", "kv@a", "kv@a", "down"]);
  expect(b.log).toEqual(["up", "kv@b", "down"]);
});

/** An engine that dials under llm-d's name was refused as a stranger unless its id was the whole topic. */
test("a topic with an engine's place in it goes to the reader that is known by the place", () => {
  const logger = createRecordingLogger();
  const { transport, open } = createShared(logger);
  const [place, named] = [open("10.0.0.1:8000"), open("kv@10.0.0.2:8000@m")];
  const { tell } = transport.subscribers[0]!;
  const published = ["kv@10.0.0.1:8000@org/model", "kv@10.0.0.1:8000@a@b", "kv@10.0.0.2:8000@m", "10.0.0.1:8000"];
  for (const topic of published) tell.onMessage(liveFrames(0, storedPayload(1), topic));
  expect(place.log).toEqual([published[0], published[1], published[3]]);
  expect(named.log).toEqual([published[2]]);
  const strangers = ["kv@10.0.0.1:8000", "kv@10.0.0.1:80@m", "xv@10.0.0.1:8000@m"];
  for (const topic of strangers) tell.onMessage(liveFrames(0, storedPayload(1), topic));
  expect(place.log).toHaveLength(3);
  expect(logger.lines, "strangers are told of once").toHaveLength(1);
});

test("one who comes later learns that there is a connection", () => {
  const { transport, open } = createShared();
  open("kv@a");
  transport.subscribers[0]!.tell.onUp();
  expect(open("kv@b").log).toEqual(["up"]);
  transport.subscribers[0]!.tell.onDown();
  expect(open("kv@c").log).toEqual([]);
});

test("a topic without a reader is told once", () => {
  const logger = createRecordingLogger();
  const { transport, open } = createShared(logger);
  open("kv@a");
  for (const topic of ["x".repeat(1_000), "y"]) {
    transport.subscribers[0]!.tell.onMessage(liveFrames(0, storedPayload(1), topic));
  }
  transport.subscribers[0]!.tell.onMessage([]);
  expect(logger.lines.map(({ fields }) => fields.topic)).toEqual(["x".repeat(256)]);
});

test("a second reader of the same topic is refused", () => {
  const { transport, open } = createShared();
  const first = open("kv@a");
  const second = open("kv@a");
  expect(second.log).toEqual(['failed: tcp://*:5557 has a reader of topic "kv@a" already']);
  second.socket.pause();
  second.socket.close();
  transport.subscribers[0]!.tell.onMessage(liveFrames(0, storedPayload(1), "kv@a"));
  expect(first.log).toEqual(["kv@a"]);
});

test("readers of one endpoint are bounded", () => {
  const { open } = createShared();
  const readers = Array.from({ length: 4_096 }, (_, reader) => open(`kv@${reader}`));
  expect(readers.flatMap(({ log }) => log)).toEqual([]);
  expect(open("kv@more").log).toEqual(["failed: tcp://*:5557 has 4096 topics already"]);
});

test("the socket is paused while any reader asks for it, and closes with the last", () => {
  const { transport, open } = createShared();
  const [a, b] = [open("kv@a"), open("kv@b")];
  const socket = transport.subscribers[0]!;
  a.socket.pause();
  b.socket.pause();
  a.socket.resume();
  expect(socket.isPaused).toBe(true);
  b.socket.close();
  expect(socket).toMatchObject({ isPaused: false, isOpen: true });
  b.socket.pause();
  expect(socket.isPaused).toBe(false);
  a.socket.close();
  a.socket.close();
  expect(socket.isOpen).toBe(false);
  open("kv@a");
  expect(transport.subscribers).toHaveLength(2);
});

test("an endpoint that cannot be bound is told to all; each then closes its part", () => {
  const { transport, open } = createShared();
  const readers = [open("kv@a"), open("kv@b")];
  transport.subscribers[0]!.tell.onFailed(new Error("in use"));
  expect(readers.map(({ log }) => log)).toEqual([["failed: in use"], ["failed: in use"]]);
  for (const { socket } of readers) socket.close();
  expect(transport.subscribers[0]!.isOpen).toBe(false);
});

/** A bind that threw left its topic behind: the next attempt was told that the topic has a reader already. */
test("an endpoint that throws when it is bound keeps no topic: the next attempt binds it", () => {
  const { transport, open } = createShared();
  const bind = transport.openSubscriber;
  transport.openSubscriber = () => {
    throw new Error("Too many open file descriptors");
  };
  expect(() => open("kv@a")).toThrow("Too many open");
  transport.openSubscriber = bind;
  const { log } = open("kv@a");
  transport.subscribers[0]!.tell.onUp();
  expect(log).toEqual(["up"]);
});

test("readers that connect have a socket each; replays pass through", () => {
  const { transport, shared } = createShared();
  for (const observer of [createObserver(), createObserver()]) {
    shared.openSubscriber({ endpoint: "tcp://engine:5557", mode: "connect", topic: "t", observer });
  }
  shared.openReplay({ endpoint: "tcp://engine:5657", start: 3, onFrames: () => {} });
  expect(transport.subscribers).toHaveLength(2);
  expect(transport.replays).toMatchObject([{ start: 3 }]);
});

test("messages that wait in the shared socket may be anybody's: all are told, also one who comes later", () => {
  const { transport, open } = createShared();
  const a = open("kv@a");
  const { tell } = transport.subscribers[0]!;
  tell.onUp();
  tell.onBacklog(true);
  const b = open("kv@b");
  tell.onBacklog(false);
  expect(a.log).toEqual(["up", "unread", "read"]);
  expect(b.log).toEqual(["up", "unread", "read"]);
  expect(open("kv@c").log).toEqual(["up"]);
});
