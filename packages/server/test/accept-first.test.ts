import { EventEmitter } from "node:events";
import type { Server } from "node:http";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createAcceptFirst, maxAcceptMs } from "../src/data-plane/accept-first.ts";

/**
 * Node accepts one connection per turn of its event loop. Requests of the first connections were served in each of these
 * turns, so that the last of 64 clients waited for some 900 requests of the others.
 */
function acceptingServer() {
  const time = createVirtualTime();
  const server = new EventEmitter();
  const served: string[] = [];
  let endTurn = (): void => {};
  const afterPoll = () => new Promise<void>((resolve) => (endTurn = resolve));
  const acceptFirst = createAcceptFirst(time.clock, afterPoll);
  acceptFirst.watch(server as Server);
  return {
    served,
    time,
    request: (name: string) => acceptFirst.pass(() => served.push(name)),
    /** One turn of the event loop, with what it accepts and reads. */
    async turn(poll: { readonly accepts?: boolean; readonly requests?: readonly string[] } = {}): Promise<void> {
      if (poll.accepts) server.emit("connection");
      for (const name of poll.requests ?? []) acceptFirst.pass(() => served.push(name));
      endTurn();
      for (let microtasks = 0; microtasks < 8; microtasks++) await Promise.resolve();
    },
  };
}

test("requests wait while each turn brings a connection, and go in the order in which they came", async () => {
  const { turn, served } = acceptingServer();
  await turn({ accepts: true });
  await turn({ accepts: true, requests: ["first"] });
  await turn({ accepts: true, requests: ["second"] });
  await turn({ requests: ["third"] });
  expect(served).toEqual(["first", "second", "third"]);
});

test("no request is served before the last of 64 connections that came at once", async () => {
  const { turn, served } = acceptingServer();
  for (let at = 0; at < 64; at++) {
    await turn({ accepts: true, requests: [`request ${at}`] });
    expect(served).toEqual([]);
  }
  await turn();
  expect(served).toHaveLength(64);
});

test("a request goes at once when no connection waits, also after others have waited", async () => {
  const { turn, served, request } = acceptingServer();
  request("early");
  expect(served).toEqual(["early"]);
  await turn({ accepts: true, requests: ["waits"] });
  await turn();
  expect(served).toEqual(["early", "waits"]);
  request("late");
  expect(served).toEqual(["early", "waits", "late"]);
});

test("connections without end hold requests back for 100 ms, and then not for 900 ms", async () => {
  const { turn, served, time, request } = acceptingServer();
  await turn({ accepts: true, requests: ["first"] });
  time.advance(maxAcceptMs - 1);
  await turn({ accepts: true });
  expect(served).toEqual([]);
  time.advance(1);
  await turn({ accepts: true });
  expect(served).toEqual(["first"]);
  for (let at = 0; at < 9; at++) {
    await turn({ accepts: true });
    request(`at once ${at}`);
    expect(served).toHaveLength(2 + at);
    time.advance(maxAcceptMs);
  }
  await turn({ accepts: true, requests: ["second"] });
  expect(served).toHaveLength(10);
  await turn();
  expect(served).toHaveLength(11);
});
