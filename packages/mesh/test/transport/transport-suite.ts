import {
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  maxUntrustedBytes,
  type Transport,
} from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";

/** What a transport needs for the suite. Frames may have 100,000 bytes at most. */
export interface TransportRig {
  /** A transport that is not started yet. */
  make(): Transport;
  /** An address where nothing listens. */
  deadAddress(): Promise<string>;
}

export const suiteFrameBytes = 100_000;

/** One end as a test sees it. */
export interface Heard extends ConnectionObserver {
  readonly frames: Uint8Array[];
  readonly ends: ConnectionEnd[];
  drains: number;
}

export function listen(): Heard {
  const heard: Heard = {
    frames: [],
    ends: [],
    drains: 0,
    frame: (frame) => heard.frames.push(frame.slice()),
    closed: (end) => heard.ends.push(end),
    drained: () => {
      heard.drains += 1;
    },
  };
  return heard;
}

export interface Pair {
  readonly dialed: Connection;
  readonly accepted: Connection;
  readonly atDialer: Heard;
  readonly atAcceptor: Heard;
}

/** Starts a transport that is stopped with the test, and keeps what it accepts. */
export async function startListening(transport: Transport): Promise<[Connection, Heard][]> {
  const accepted: [Connection, Heard][] = [];
  transport.onConnection((connection) => {
    const heard = listen();
    accepted.push([connection, heard]);
    return heard;
  });
  await transport.start();
  onTestFinished(() => transport.stop());
  return accepted;
}

/** Two transports with one connection between them. */
export async function connect(from: Transport, to: Transport, isTrusted = true): Promise<Pair> {
  await startListening(from);
  const accepted = await startListening(to);
  const atDialer = listen();
  let dialed: Connection | undefined;
  from.dial(to.address, {
    ...atDialer,
    drained: () => atDialer.drained(),
    opened(connection) {
      dialed = connection;
    },
  });
  const opened = await waitFor(() => dialed, { what: "an opened connection" });
  const [other, atAcceptor] = await waitFor(() => accepted[0], { what: "an accepted connection" });
  if (isTrusted) {
    opened.trust();
    other.trust();
  }
  return { dialed: opened, accepted: other, atDialer, atAcceptor };
}

/** The contract of every transport. */
export function describeTransport(name: string, rigOf: () => TransportRig): void {
  describe(`${name} keeps the contract of a transport:`, () => {
    carriesFrames(rigOf);
    boundsFrames(rigOf);
    trustsMidway(rigOf);
    endsConnections(rigOf);
    keepsConnectionsApart(rigOf);
    endsDials(rigOf);
  });
}

function carriesFrames(rigOf: () => TransportRig): void {
  test("frames arrive whole and in order, both ways", async () => {
    const rig = rigOf();
    const { dialed, accepted, atDialer, atAcceptor } = await connect(rig.make(), rig.make());
    for (let index = 0; index < 100; index++) {
      dialed.send(Uint8Array.of(index));
      accepted.send(new Uint8Array(index).fill(index));
    }
    await waitFor(() => atAcceptor.frames.length === 100 && atDialer.frames.length === 100, { what: "all frames" });
    expect(atAcceptor.frames.map((frame) => [...frame])).toEqual(Array.from({ length: 100 }, (_, index) => [index]));
    expect(atDialer.frames.map(({ length }) => length)).toEqual(Array.from({ length: 100 }, (_, index) => index));
    expect(atDialer.frames[99]!.every((byte) => byte === 99)).toBe(true);
    expect(dialed.remote).not.toBe("");
    expect(accepted.remote).not.toBe("");
  });

  test("what waits is told, and when it has left", async () => {
    const rig = rigOf();
    const { dialed, atDialer, atAcceptor } = await connect(rig.make(), rig.make());
    const frame = new Uint8Array(suiteFrameBytes);
    for (let index = 0; index < 400; index++) dialed.send(frame);
    expect(dialed.bufferedBytes).toBeGreaterThan(drainMarkBytes);
    expect(atDialer.drains).toBe(0);
    await waitFor(() => atDialer.drains > 0, { what: "a drained connection", deadlineMs: 15_000 });
    expect(dialed.bufferedBytes).toBeLessThan(drainMarkBytes);
    await waitFor(() => atAcceptor.frames.length === 400, { what: "all frames", deadlineMs: 15_000 });
    expect(atDialer.drains).toBe(1);
  });

  test("nobody is called from inside a call", async () => {
    const rig = rigOf();
    const { dialed, atDialer, atAcceptor } = await connect(rig.make(), rig.make());
    dialed.send(Uint8Array.of(1));
    dialed.close(1000, "done");
    dialed.terminate();
    expect([atDialer.ends, atAcceptor.frames]).toEqual([[], []]);
    await waitFor(() => atDialer.ends.length > 0, { what: "the end" });
  });
}

function boundsFrames(rigOf: () => TransportRig): void {
  test("the largest frame passes, one byte more ends this connection and no other", async () => {
    const rig = rigOf();
    const listener = rig.make();
    const { dialed, accepted, atDialer, atAcceptor } = await connect(rig.make(), listener);
    const second = await connectAgain(rig.make(), listener);
    dialed.send(new Uint8Array(suiteFrameBytes));
    await waitFor(() => atAcceptor.frames.length === 1, { what: "the largest frame" });
    dialed.send(new Uint8Array(suiteFrameBytes + 1));
    await waitFor(() => atAcceptor.ends.length === 1, { what: "the end at the receiver" });
    await waitFor(() => atDialer.ends.length === 1, { what: "the end at the sender" });
    expect(atAcceptor.ends).toMatchObject([{ kind: "error", code: 1009 }]);
    expect(atDialer.ends).toMatchObject([{ kind: "closed", code: 1009 }]);
    expect(atAcceptor.frames).toHaveLength(1);
    accepted.send(Uint8Array.of(1));
    second.dialed.send(Uint8Array.of(1));
    expect(second.atDialer.ends).toEqual([]);
  });

  test("who is not trusted may send only so much in all", async () => {
    const rig = rigOf();
    const { dialed, accepted, atAcceptor, atDialer } = await connect(rig.make(), rig.make(), false);
    const part = new Uint8Array(maxUntrustedBytes / 4 - 16);
    for (let index = 0; index < 4; index++) dialed.send(part);
    await waitFor(() => atAcceptor.frames.length === 4, { what: "what is allowed" });
    accepted.send(Uint8Array.of(1));
    await waitFor(() => atDialer.frames.length === 1, { what: "an answer" });
    dialed.send(part);
    await waitFor(() => atAcceptor.ends.length === 1, { what: "the end" });
    expect(atAcceptor.ends).toMatchObject([{ kind: "error", code: 1009 }]);
  });
}

function trustsMidway(rigOf: () => TransportRig): void {
  // A router sends as soon as it has accepted. Its first frames came in one read with the frame that earned its trust,
  // and were counted as those of a stranger, since a listener that is taken off still hears the event under way.
  test("trust that a frame has earned holds for the bytes that came with it", async () => {
    const rig = rigOf();
    const { dialed, accepted, atAcceptor } = await connect(rig.make(), rig.make(), false);
    let trusting = 0;
    atAcceptor.frame = (frame) => {
      accepted.trust();
      trusting = atAcceptor.frames.push(frame);
    };
    dialed.send(Uint8Array.of(1));
    for (let index = 0; index < 5; index++) dialed.send(new Uint8Array(maxUntrustedBytes));
    await waitFor(() => trusting === 6 || atAcceptor.ends.length > 0, { what: "all frames" });
    expect(atAcceptor.ends).toEqual([]);
  });
}

async function connectAgain(from: Transport, to: Transport): Promise<{ dialed: Connection; atDialer: Heard }> {
  await startListening(from);
  return dialFrom(from, to);
}

/** One more connection from a transport that runs. */
async function dialFrom(from: Transport, to: Transport): Promise<{ dialed: Connection; atDialer: Heard }> {
  const atDialer = listen();
  let dialed: Connection | undefined;
  from.dial(to.address, {
    ...atDialer,
    opened(connection) {
      dialed = connection;
    },
  });
  return { dialed: await waitFor(() => dialed, { what: "a second connection" }), atDialer };
}

function endsConnections(rigOf: () => TransportRig): void {
  test("a close in good order is heard once at both ends, after what was sent before", async () => {
    const rig = rigOf();
    const { dialed, atDialer, atAcceptor } = await connect(rig.make(), rig.make());
    for (let index = 0; index < 10; index++) dialed.send(Uint8Array.of(index));
    dialed.close(4_001, "enough");
    dialed.send(Uint8Array.of(99));
    dialed.close(4_002, "again");
    await waitFor(() => atDialer.ends.length > 0 && atAcceptor.ends.length > 0, { what: "both ends" });
    expect(atAcceptor.frames).toHaveLength(10);
    expect(atAcceptor.ends).toEqual([{ kind: "closed", code: 4_001, reason: "enough" }]);
    expect(atDialer.ends).toMatchObject([{ kind: "closed" }]);
  });

  test("a connection that is broken off is a reset at both ends", async () => {
    const rig = rigOf();
    const { dialed, accepted, atDialer, atAcceptor } = await connect(rig.make(), rig.make());
    accepted.terminate();
    await waitFor(() => atDialer.ends.length > 0 && atAcceptor.ends.length > 0, { what: "both ends" });
    expect(atDialer.ends).toMatchObject([{ kind: "reset" }]);
    expect(atAcceptor.ends).toMatchObject([{ kind: "reset" }]);
    dialed.send(Uint8Array.of(1));
    dialed.terminate();
    accepted.close(1000, "");
    expect([atDialer.ends.length, atAcceptor.ends.length, dialed.bufferedBytes]).toEqual([1, 1, 0]);
  });

  test("stopping ends all connections for both ends, and may be done twice", async () => {
    const rig = rigOf();
    const listener = rig.make();
    const { atDialer, atAcceptor } = await connect(rig.make(), listener);
    await listener.stop();
    await waitFor(() => atDialer.ends.length > 0 && atAcceptor.ends.length > 0, { what: "both ends" });
    expect([atDialer.ends.length, atAcceptor.ends.length]).toEqual([1, 1]);
    await listener.stop();
    expect(() => listener.dial("127.0.0.1:1", { ...listen(), opened() {} })).toThrow(TypeError);
  });
}

function keepsConnectionsApart(rigOf: () => TransportRig): void {
  test("many connections between two transports at once each carry their own frames in order", async () => {
    const rig = rigOf();
    const [from, to] = [rig.make(), rig.make()];
    await startListening(from);
    const accepted = await startListening(to);
    const opened = await Promise.all(Array.from({ length: 32 }, () => dialFrom(from, to)));
    for (let round = 0; round < 20; round++) {
      for (const [index, { dialed }] of opened.entries()) dialed.send(Uint8Array.of(index, round));
    }
    await waitFor(() => accepted.length === 32 && accepted.every(([, { frames }]) => frames.length === 20), {
      what: "the frames of all connections",
    });
    const senders = accepted.map(([, { frames }]) => {
      const [first] = frames;
      expect(frames.map((frame) => [...frame])).toEqual(Array.from({ length: 20 }, (_, round) => [first![0], round]));
      return first![0]!;
    });
    expect(new Set(senders).size).toBe(32);
    expect(accepted.flatMap(([, { ends }]) => ends)).toEqual([]);
  });

  test("what waited on a connection that was broken off does not arrive on the next one", async () => {
    const rig = rigOf();
    const [from, to] = [rig.make(), rig.make()];
    await startListening(from);
    const accepted = await startListening(to);
    const first = await dialFrom(from, to);
    for (let index = 0; index < 50; index++) first.dialed.send(Uint8Array.of(1));
    first.dialed.terminate();
    const second = await dialFrom(from, to);
    second.dialed.send(Uint8Array.of(2));
    const [, heard] = await waitFor(() => accepted[1], { what: "the second connection" });
    await waitFor(() => heard.frames.length > 0 && accepted[0]![1].ends.length > 0, { what: "its frame, and the end" });
    expect(heard.frames.map((frame) => [...frame])).toEqual([[2]]);
    expect(heard.ends).toEqual([]);
    expect(accepted[0]![1].ends).toHaveLength(1);
  });
}

function endsDials(rigOf: () => TransportRig): void {
  test("an address where nothing listens refuses", async () => {
    const rig = rigOf();
    const transport = rig.make();
    await startListening(transport);
    const heard = listen();
    const opened: Connection[] = [];
    transport.dial(await rig.deadAddress(), { ...heard, opened: (connection) => opened.push(connection) });
    await waitFor(() => heard.ends.length > 0, { what: "the refusal" });
    expect(heard.ends).toMatchObject([{ kind: "refused" }]);
    expect(opened).toEqual([]);
  });

  test("a transport that is stopped while it dials tells the observer", async () => {
    const rig = rigOf();
    const transport = rig.make();
    const listener = rig.make();
    await startListening(transport);
    await startListening(listener);
    const heard = listen();
    transport.dial(listener.address, { ...heard, opened() {} });
    await transport.stop();
    await waitFor(() => heard.ends.length > 0, { what: "the end of the dial" });
    expect(heard.ends).toHaveLength(1);
  });

  test("a transport has an address once it is started", async () => {
    const transport = rigOf().make();
    expect(transport.address).toBe("");
    await startListening(transport);
    expect(transport.address).toMatch(/^.+:\d+$/);
  });
}
