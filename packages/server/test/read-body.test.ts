import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { systemAfterPoll } from "@espalier/core";
import { expect, test } from "vitest";
import { type BodyLimits, readBody } from "../src/data-plane/read-body.ts";
import { maxInlineBytes } from "../src/large-bodies/large-bodies.ts";

/** A body as it comes in, and what was said of it in the end. */
function reading(declaredBytes: number | undefined, limits: Partial<BodyLimits> = {}) {
  const headers = declaredBytes === undefined ? {} : { "content-length": String(declaredBytes) };
  const incoming = Object.assign(new PassThrough(), { headers });
  const ends: (readonly [error: Error | null, body?: Buffer | undefined])[] = [];
  const maxBytes = limits.maxBytes ?? 10 * maxInlineBytes;
  readBody(incoming as unknown as IncomingMessage, { ...limits, maxBytes }, (...end) => void ends.push(end));
  return { incoming, ends };
}

async function writeAll(incoming: PassThrough, pieces: readonly Buffer[]): Promise<void> {
  for (const piece of pieces) {
    incoming.write(piece);
    await systemAfterPoll();
  }
}

test.each([
  ["in one piece", [100], 100],
  ["in pieces", [100, 0, 7, 90_000], undefined],
  ["of the greatest size that is not large", [maxInlineBytes - 1, 1], undefined],
  ["that becomes large", [maxInlineBytes, 1, 70_000, 3 * maxInlineBytes], undefined],
  ["that is large by its own word", [70_000, maxInlineBytes], maxInlineBytes + 70_000],
  ["that is longer than its word", [70_000, maxInlineBytes, 9], maxInlineBytes + 1],
])("a body %s is read whole, in shared memory where it is large", async (_, sizes, declared) => {
  const { incoming, ends } = reading(declared);
  const pieces = sizes.map((size, at) => Buffer.alloc(size, 97 + at));
  await writeAll(incoming, pieces);
  expect(ends).toEqual([]);
  incoming.end();
  await systemAfterPoll();
  const whole = Buffer.concat(pieces);
  expect(ends).toHaveLength(1);
  const [error, body] = ends[0]!;
  expect([error, body!.equals(whole)]).toEqual([null, true]);
  expect(body!.buffer instanceof SharedArrayBuffer).toBe(whole.length > maxInlineBytes);
});

test("a body of as many bytes as may be is read, one of one more is refused when that byte comes", async () => {
  const { incoming, ends } = reading(undefined, { maxBytes: 1_000 });
  await writeAll(incoming, [Buffer.alloc(1_000)]);
  expect(ends).toEqual([]);
  await writeAll(incoming, [Buffer.alloc(1), Buffer.alloc(1)]);
  expect(ends).toMatchObject([[{ code: "body_too_large" }]]);
  expect(reading(1_000, { maxBytes: 1_000 }).ends).toEqual([]);
  expect(reading(1_001, { maxBytes: 1_000 }).ends).toMatchObject([[{ code: "body_too_large" }]]);
});

test("a body whose client left before it was read ends with the error of the connection", async () => {
  const lost = new Error("aborted");
  const incoming = Object.assign(new PassThrough(), { headers: {} });
  incoming.once("error", () => {}).destroy(lost);
  await systemAfterPoll();
  const ends: unknown[] = [];
  readBody(incoming as unknown as IncomingMessage, { maxBytes: 1_000 }, (...end) => void ends.push(end));
  expect(ends).toEqual([[lost]]);
});

test("what is wrong with a piece, or with the connection, ends the reading once", async () => {
  const wrong = new Error("no room");
  const counted: number[] = [];
  const onPiece = (bytes: number): Error | undefined => (counted.push(bytes) === 2 ? wrong : undefined);
  const refused = reading(undefined, { onPiece });
  await writeAll(refused.incoming, [Buffer.alloc(3), Buffer.alloc(4), Buffer.alloc(5)]);
  refused.incoming.end();
  await systemAfterPoll();
  expect([refused.ends, counted]).toEqual([[[wrong]], [3, 4]]);

  const broken = reading(10);
  await writeAll(broken.incoming, [Buffer.alloc(3)]);
  const reset = new Error("aborted");
  broken.incoming.destroy(reset);
  await systemAfterPoll();
  expect(broken.ends).toEqual([[reset]]);
});
