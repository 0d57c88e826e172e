import type { Socket } from "node:net";
import { expect, test } from "vitest";
import { attemptRig } from "./attempt-rig.ts";
import { rawEngine } from "./engines.ts";

/*
 * An engine, or a proxy before it, that sent `100 Continue` unasked was answered with 502: undici takes that interim answer, and no
 * other, for a fault.
 */
const final = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const kinds = ["100 Continue", "102 Processing", "103 Early Hints\r\nlink: </x>"];
const interim = (...numbers: readonly number[]): string =>
  numbers.map((at) => `HTTP/1.1 ${kinds[at]}\r\n\r\n`).join("");

test.each([
  ["100", interim(0)],
  ["100, twice", interim(0, 0)],
  ["102", interim(1)],
  ["103, then 100", interim(2, 0)],
  ["100, then 103, then 102", interim(0, 2, 1)],
  ["100 with headers", "HTTP/1.1 100 Continue\r\nserver: HTTP/1.1 100\r\n\r\n"],
])(
  "interim answers (%s) before the answer are skipped, on one connection and request after request",
  async (_, before) => {
    const engine = await rawEngine((socket) => socket.write(before + final));
    const { attempt } = await attemptRig();
    for (let i = 0; i < 3; i++) expect(await attempt(engine.url)).toBe("answered 200 ok");
    expect(engine.sockets).toHaveLength(1);
  },
);

test("interim answers are skipped wherever the network cuts them", async () => {
  const text = interim(0, 2, 0) + final;
  const cuts = Array.from({ length: interim(0, 2, 0).length + 14 }, (_, at) => at + 1);
  const write = (socket: Socket, at: number): void => {
    socket.setNoDelay(true);
    socket.write(text.slice(0, at), () => setImmediate(() => socket.write(text.slice(at))));
  };
  const engine = await rawEngine((socket, index) => write(socket, cuts[index]!));
  const { attempt } = await attemptRig();
  for (const _ of cuts) expect(await attempt(engine.url)).toBe("answered 200 ok");
});

test("a body that looks like an interim answer arrives as it is", async () => {
  const body = `\r\n\r\n${interim(0)}`;
  const engine = await rawEngine((socket) =>
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`),
  );
  const { attempt } = await attemptRig();
  expect(await attempt(engine.url)).toBe(`answered 200 ${body}`);
});

test("an answer in chunks may still name the former coding identity, and no other coding", async () => {
  const chunked = (coding: string): string =>
    `HTTP/1.1 200 OK\r\ntransfer-encoding: ${coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n`;
  for (const [coding, outcome] of [
    ["chunked", "answered 200 ok"],
    ["identity, chunked", "answered 200 ok"],
    ["gzip, chunked", "failed protocol"],
    ["x-unknown, Chunked", "failed protocol"],
  ] as const) {
    const engine = await rawEngine((socket) => socket.write(chunked(coding)));
    const { attempt } = await attemptRig();
    expect(await attempt(engine.url), coding).toBe(outcome);
  }
});
