import { EventEmitter } from "node:events";
import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import type { WebSocket } from "ws";
import type { DocumentUpdate } from "../../src/replicated-documents.ts";
import {
  createDocumentReader,
  defaultYWebsocketLimits,
  emptyAwarenessMessage,
  type ReaderIncident,
  syncedMessage,
  updateMessage,
  type YWebsocketLimits,
} from "../../src/y-websocket/y-websocket-endpoint.ts";

/** A socket that keeps what is sent until the test lets it leave. */
class HeldSocket extends EventEmitter {
  readonly OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  readonly sent: Uint8Array[] = [];
  closed: number | "terminated" | undefined;
  readonly #leaving: { readonly bytes: number; readonly whenSent: ((error?: Error) => void) | undefined }[] = [];

  send(message: Uint8Array, whenSent?: (error?: Error) => void): void {
    this.sent.push(message);
    this.bufferedAmount += message.length;
    this.#leaving.push({ bytes: message.length, whenSent });
  }

  /** The oldest message leaves, or fails to. @returns false when none waits */
  leave(error?: Error): boolean {
    const next = this.#leaving.shift();
    if (!next) return false;
    this.bufferedAmount -= next.bytes;
    next.whenSent?.(error);
    return true;
  }

  close(code: number): void {
    this.closed = code;
    this.readyState = 2;
  }

  terminate(): void {
    this.closed = "terminated";
    this.readyState = 3;
  }
}

const name = "journal/default/r1/17";

/** Documents of numbered pieces, whose `diff` reads the state vector at once, as that of journals does. */
function makeDocuments(pieces: number) {
  const asked: number[][] = [];
  const state = { isThere: true, taken: 0 };
  function* all(): Generator<DocumentUpdate, void, undefined> {
    for (let at = 0; at < pieces; at++) {
      state.taken++;
      yield { name, from: at, to: at + 1, bytes: Uint8Array.of(at) };
    }
  }
  return {
    asked,
    state,
    served: {
      state: () => (state.isThere ? { name, origin: undefined, clock: 0, byteLength: 1 } : undefined),
      diff(_name: string, stateVector: Uint8Array) {
        if (stateVector.length === 0) throw new RangeError("no state vector");
        asked.push([...stateVector]);
        return all();
      },
      onUpdate: () => () => {},
    },
  };
}

function makeReader(pieces = 3, limits: Partial<YWebsocketLimits> = {}) {
  const socket = new HeldSocket();
  const documents = makeDocuments(pieces);
  const incidents: ReaderIncident[] = [];
  const reader = createDocumentReader({
    socket: socket as unknown as WebSocket,
    name,
    documents: documents.served,
    limits: { ...defaultYWebsocketLimits, ...limits },
    count: (incident) => void incidents.push(incident),
  });
  const hears = (...bytes: number[]): void => void socket.emit("message", Buffer.from(bytes), true);
  const asks = (...vector: number[]): void => hears(0, 0, vector.length, ...vector);
  const leaveAll = (): void => {
    while (socket.leave()) {}
  };
  return { socket, reader, incidents, hears, asks, leaveAll, ...documents };
}

const piece = (at: number): Uint8Array => updateMessage(Uint8Array.of(at));

describe("an answer", () => {
  test("goes out one piece at a time, each computed once the one before it has left", () => {
    const { socket, asks, state } = makeReader(3);
    asks(0);
    expect([socket.sent.length, state.taken]).toEqual([1, 1]);
    socket.leave();
    expect([socket.sent.length, state.taken]).toEqual([2, 2]);
    socket.leave();
    socket.leave();
    expect(socket.sent).toEqual([piece(0), piece(1), piece(2), syncedMessage]);
  });

  test("of nothing says at once that this is all", () => {
    const { socket, asks } = makeReader(0);
    asks(0);
    expect(socket.sent).toEqual([syncedMessage]);
  });

  test("is given again for the latest of the questions that came meanwhile, and for no other", () => {
    const { socket, asks, asked, leaveAll } = makeReader(2);
    for (const vector of [1, 2, 3, 4]) asks(vector);
    leaveAll();
    expect(asked).toEqual([[1], [4]]);
    expect(socket.sent).toEqual([piece(0), piece(1), syncedMessage, piece(0), piece(1), syncedMessage]);
    asks(5);
    leaveAll();
    expect(asked).toHaveLength(3);
  });

  test("ends with the connection, whether it was closed or a piece could not be sent", () => {
    const [closed, failed] = [makeReader(3), makeReader(3)];
    closed.asks(0);
    closed.socket.readyState = 3;
    closed.leaveAll();
    expect(closed.state.taken).toBe(1);
    failed.asks(0);
    failed.socket.leave(new Error("EPIPE"));
    failed.leaveAll();
    expect(failed.state.taken).toBe(1);
  });

  // Symptom: a question that waited asked for something else once its frame's buffer was used again.
  // Mechanism: the slice of a Buffer, as sockets give it, is a view and no copy.
  test("keeps a state vector that its frame's buffer is used again for", () => {
    const { socket, asks, asked, leaveAll } = makeReader(1);
    asks(0);
    const frame = Buffer.from([0, 0, 2, 7, 8]);
    socket.emit("message", frame, true);
    frame.fill(0xff);
    leaveAll();
    expect(asked[1]).toEqual([7, 8]);
  });

  // Symptom: any reader could end the router's process with two messages.
  // Mechanism: a question that waited for the answer before it was read in the callback of a write, where nobody took
  // the error of a state vector that cannot be read.
  test("to a question that waited and cannot be read ends this connection, and no process", () => {
    const { socket, asks, incidents, leaveAll } = makeReader(2);
    asks(0);
    asks();
    expect(leaveAll).not.toThrow();
    expect(socket.closed).toBe(4400);
    expect(incidents).toEqual(["message-unreadable"]);
    expect(socket.sent).toEqual([piece(0), piece(1), syncedMessage]);
  });

  test("to a question that cannot be read ends the connection at once", () => {
    const { socket, asks, incidents } = makeReader(2);
    asks();
    expect([socket.closed, incidents]).toEqual([4400, ["message-unreadable"]]);
    expect(socket.sent).toEqual([]);
  });
});

describe("what a reader sends", () => {
  test.each<[string, number[], ReaderIncident[]]>([
    ["sync step 2", [0, 1, 1, 0], ["write-ignored"]],
    ["an update", [0, 2, 1, 0], ["write-ignored"]],
    ["an unknown kind of sync", [0, 3, 0], ["message-unknown"]],
    ["awareness", [1, 5, 1, 2, 3], []],
    ["a question of permission", [2, 0], ["message-unknown"]],
    ["a kind that nobody knows", [99], ["message-unknown"]],
  ])("is passed over and counted: %s", (_, bytes, expected) => {
    const { socket, hears, incidents } = makeReader();
    hears(...bytes);
    expect(incidents).toEqual(expected);
    expect([socket.sent.length, socket.closed]).toEqual([0, undefined]);
  });

  test("may ask who is there, as often as it likes, within what may wait for it", () => {
    const { socket, hears, incidents } = makeReader(1, { maxBufferedBytes: 8 });
    hears(3);
    hears(3);
    hears(3);
    expect(socket.sent).toEqual([emptyAwarenessMessage, emptyAwarenessMessage, emptyAwarenessMessage]);
    hears(3);
    expect([socket.closed, incidents]).toEqual(["terminated", ["buffer-full"]]);
  });

  test.each([[[]], [[0]], [[0, 0]], [[0, 0, 5, 1]], [[0, 0, 255]], [[128]]])(
    "is refused when it ends early: %j",
    (bytes) => {
      const { socket, hears, incidents } = makeReader();
      hears(...bytes);
      expect([socket.closed, incidents]).toEqual([4400, ["message-unreadable"]]);
    },
  );

  test("is refused when it is text", () => {
    const { socket, incidents } = makeReader();
    socket.emit("message", Buffer.from([0, 0, 1, 0]), false);
    expect([socket.closed, incidents]).toEqual([4400, ["message-unreadable"]]);
  });

  test("may have a state vector of the bound, and not of one byte more", () => {
    const vector = (length: number): number[] => [0, 0, length, ...Array<number>(length).fill(1)];
    const [fits, long] = [makeReader(1, { maxPayloadBytes: 20 }), makeReader(1, { maxPayloadBytes: 20 })];
    fits.hears(...vector(20));
    long.hears(...vector(21));
    expect([fits.socket.closed, long.socket.closed]).toEqual([undefined, 4400]);
  });

  test("never ends in anything but an answer, a count or a refusal, whatever it is", () => {
    const random = createSeededRandom(5);
    for (let round = 0; round < 300; round++) {
      const { socket, hears, leaveAll } = makeReader(random.integer(4));
      for (let messages = 1 + random.integer(8); messages > 0; messages--) {
        const bytes = Array.from({ length: random.integer(7) }, () => random.integer(random.integer(2) ? 4 : 256));
        expect(() => hears(...bytes)).not.toThrow();
        if (random.integer(2) === 0) socket.leave();
      }
      expect(leaveAll).not.toThrow();
      expect([undefined, 4400]).toContain(socket.closed);
    }
  });
});

describe("what waits for a reader", () => {
  test("may be as much as the bound; with one byte more the next message ends the connection", () => {
    const { socket, reader, incidents } = makeReader(1, { maxBufferedBytes: 10 });
    reader.send(new Uint8Array(10));
    reader.send(new Uint8Array(1));
    expect(socket.sent).toHaveLength(2);
    reader.send(new Uint8Array(1));
    expect([socket.sent.length, socket.closed, incidents]).toEqual([2, "terminated", ["buffer-full"]]);
    reader.send(new Uint8Array(1));
    expect(incidents).toHaveLength(1);
  });

  test("is a sign of life while its document is there, and the end when it is gone", () => {
    const { socket, reader, state } = makeReader();
    reader.keepAlive();
    expect(socket.sent).toEqual([emptyAwarenessMessage]);
    state.isThere = false;
    reader.keepAlive();
    expect([socket.sent.length, socket.closed]).toEqual([1, 4404]);
  });
});
