import { EventEmitter } from "node:events";
import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { allowHalfClose } from "../src/data-plane/client-connections.ts";

/** A connection of which the client has closed its half, and the answer that is under way on it. */
function halfClosed({ headersSent }: { readonly headersSent: boolean }) {
  const time = createVirtualTime();
  const startMs = time.clock.nowMs();
  const processing: number[] = [];
  const destroyed: number[] = [];
  const answer = Object.assign(new EventEmitter(), {
    ...{ headersSent, writableLength: 0, destroyed: false, req: { httpVersion: "1.1" } },
    writeContinue: () => void processing.push(time.clock.nowMs() - startMs),
  });
  const socket = Object.assign(new EventEmitter(), {
    bytesWritten: 100,
    destroy: () => void destroyed.push(time.clock.nowMs() - startMs),
  });
  const server = new EventEmitter();
  const openAnswers = { watch: () => {}, on: () => [answer as unknown as ServerResponse] };
  allowHalfClose(server as unknown as Server, openAnswers, time.scheduler);
  server.emit("connection", socket as unknown as Socket);
  socket.emit("end");
  return { time, answer, socket, processing, destroyed };
}

test("an answer that has begun and pauses is given up after a second, and not before", () => {
  const { time, destroyed, processing } = halfClosed({ headersSent: true });
  time.advance(999);
  expect(destroyed).toEqual([]);
  time.advance(1);
  expect(destroyed).toEqual([1_000]);
  time.advance(60_000);
  expect([destroyed, processing]).toEqual([[1_000], []]);
  expect(time.pendingCount).toBe(0);
});

// It was ended after its first second, whatever went on.
test("an answer of which something was written within each second goes on, and is given up in the first without", () => {
  const { time, socket, destroyed } = halfClosed({ headersSent: true });
  for (let second = 0; second < 30; second++) {
    socket.bytesWritten += 1;
    time.advance(1_000);
  }
  expect(destroyed).toEqual([]);
  time.advance(1_000);
  expect(destroyed).toEqual([31_000]);
});

test("an answer that waits for a client that reads slowly is no pause, until it was read", () => {
  const { time, answer, destroyed } = halfClosed({ headersSent: true });
  answer.writableLength = 5;
  time.advance(30_000);
  expect(destroyed).toEqual([]);
  answer.writableLength = 0;
  time.advance(1_000);
  expect(destroyed).toEqual([31_000]);
});

test("an answer that begins only then is watched, too, and is no longer preceded by anything", () => {
  const { time, answer, destroyed, processing } = halfClosed({ headersSent: false });
  time.advance(200);
  expect(processing).toEqual([0, 50, 150]);
  answer.headersSent = true;
  time.advance(150);
  time.advance(999);
  expect(destroyed).toEqual([]);
  time.advance(1);
  expect([destroyed, processing]).toEqual([[1_350], [0, 50, 150]]);
});

test.each([true, false])("nothing is left to be done for an answer that has ended (begun: %s)", (headersSent) => {
  const { time, answer, destroyed, processing } = halfClosed({ headersSent });
  const before = processing.length;
  answer.emit("close");
  expect(time.pendingCount).toBe(0);
  time.advance(60_000);
  expect([destroyed, processing.length]).toEqual([[], before]);
});
