import { EventEmitter } from "node:events";
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { expect, test } from "vitest";
import { answerClientError } from "../src/data-plane/client-connections.ts";

const maxHeaderBytes = 64;

/** Status of the answer to bytes that Node gave up on; undefined for none. */
function statusOf(code: string, rawPacket?: unknown, open: readonly object[] = []): number | undefined {
  let sent = "";
  const socket = Object.assign(new EventEmitter(), {
    writable: true,
    end(text: string) {
      sent = text;
    },
    destroy: () => {},
  });
  const openAnswers = { watch: () => {}, on: () => open as readonly ServerResponse[] };
  const error = Object.assign(new Error(code), { code, rawPacket });
  answerClientError(openAnswers, error, socket as unknown as Socket, maxHeaderBytes);
  return sent === "" ? undefined : Number(/^HTTP\/1\.1 (\d+) /.exec(sent)?.[1]);
}

const overflow = (packet: unknown): number | undefined => statusOf("HPE_HEADER_OVERFLOW", packet);
/** A first line of so many bytes, without its end. */
const line = (bytes: number): string => "GET /".padEnd(bytes, "p");

// Node says of a path that is too long what it says of headers: that there is too much of both.
test.each([
  ["a first line that is as long as all may be", Buffer.from(`${line(maxHeaderBytes)}\nhost: x`), 431],
  ["a first line one byte longer", Buffer.from(`${line(maxHeaderBytes + 1)}\nhost: x`), 414],
  ["a first line without an end, as long as all may be", Buffer.from(line(maxHeaderBytes)), 431],
  ["a first line without an end, one byte longer", Buffer.from(line(maxHeaderBytes + 1)), 414],
  ["a short first line before long headers", Buffer.from(`${line(20)}\r\nbig: ${"h".repeat(500)}`), 431],
  ["headers that go on in a packet of their own", Buffer.from("h".repeat(500)), 431],
  ["a header in capitals in a packet of its own", Buffer.from(`BIG: ${"h".repeat(500)}`), 431],
  ["no packet", undefined, 431],
])("%s", (_, packet, status) => {
  expect(overflow(packet)).toBe(status);
});

test("other errors have a status of their own, a connection that was reset has none", () => {
  expect(statusOf("ERR_HTTP_REQUEST_TIMEOUT")).toBe(408);
  expect(statusOf("HPE_INVALID_METHOD")).toBe(400);
  expect(statusOf("ECONNRESET")).toBeUndefined();
});

test("nothing is written into an answer that is under way, or instead of one to come", () => {
  const answer = (headersSent: boolean, complete: boolean) => [{ headersSent, req: { complete } }];
  expect(statusOf("HPE_INVALID_METHOD", undefined, answer(false, false))).toBe(400);
  expect(statusOf("HPE_INVALID_METHOD", undefined, answer(true, false))).toBeUndefined();
  expect(statusOf("HPE_INVALID_METHOD", undefined, answer(false, true))).toBeUndefined();
});
