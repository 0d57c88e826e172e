import { expect, test } from "vitest";
import { createSeededRandom } from "../src/index.ts";
import { closeFrame, encodeFrame, FrameScanner, opcodes, webSocketAccept } from "../src/websocket.ts";

/** A client's frame with a mask, as `ws` and browsers write it. */
function masked(frame: Buffer, mask: readonly number[]): Buffer {
  const headLength = frame.length > 65_537 ? 10 : frame.length > 127 ? 4 : 2;
  const head = Buffer.from(frame.subarray(0, headLength));
  head[1]! |= 0x80;
  const payload = frame.subarray(headLength).map((byte, at) => byte ^ mask[at & 3]!);
  return Buffer.concat([head, Buffer.from(mask), payload]);
}

interface Seen {
  readonly opcode: number;
  readonly text: string | undefined;
}

function scan(chunks: readonly Buffer[], maxKept = 1_000) {
  const seen: Seen[] = [];
  const scanner = new FrameScanner(maxKept, (opcode, payload) => seen.push({ opcode, text: payload?.toString() }));
  for (const chunk of chunks) scanner.push(chunk);
  return { scanner, seen };
}

test("the accept key is that of RFC 6455, section 1.3", () => {
  expect(webSocketAccept("dGhlIHNhbXBsZSBub25jZQ==")).toBe("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
});

test("messages are found in whatever pieces they come, masked or not", () => {
  const random = createSeededRandom(7);
  const texts = ["", "a", "x".repeat(125), "y".repeat(126), "z".repeat(999), "ä".repeat(400)];
  const frames = texts.flatMap((text) => [
    encodeFrame(opcodes.text, text),
    masked(encodeFrame(opcodes.text, text), [1, 2, 3, 254]),
    encodeFrame(opcodes.text, text, true),
  ]);
  const bytes = Buffer.concat(frames);
  for (let round = 0; round < 50; round++) {
    const chunks: Buffer[] = [];
    for (let at = 0; at < bytes.length; ) {
      const length = 1 + random.integer(round < 10 ? 3 : 700);
      chunks.push(bytes.subarray(at, at + length));
      at += length;
    }
    const { scanner, seen } = scan(chunks);
    expect(seen.map(({ text }) => text)).toEqual(texts.flatMap((text) => [text, text, text]));
    expect([scanner.position, scanner.isBetweenFrames]).toEqual([bytes.length, true]);
  }
});

test("a message longer than is kept passes unread, and so do compressed ones; the next is read again", () => {
  const compressed = encodeFrame(opcodes.text, "deflated");
  compressed[0]! |= 0x40;
  const long = encodeFrame(opcodes.binary, "x".repeat(70_000));
  const { seen } = scan([encodeFrame(opcodes.text, "12345"), compressed, long, encodeFrame(opcodes.text, "1234")], 4);
  expect(seen).toEqual([
    { opcode: opcodes.text, text: undefined },
    { opcode: opcodes.text, text: undefined },
    { opcode: opcodes.binary, text: undefined },
    { opcode: opcodes.text, text: "1234" },
  ]);
});

test("fragments are one message, also around a ping", () => {
  const [first, last] = [encodeFrame(opcodes.text, "one "), encodeFrame(opcodes.continuation, "message")];
  first[0]! &= 0x7f;
  const { scanner, seen } = scan([encodeFrame(opcodes.text, "zero"), first, encodeFrame(opcodes.ping, "p"), last]);
  expect(seen.slice(1)).toEqual([
    { opcode: opcodes.ping, text: "p" },
    { opcode: opcodes.text, text: "one message" },
  ]);
  expect(scanner.messageFrom).toBe(6);
});

test("a close frame is noticed; its reason is cut where a control frame ends", () => {
  const { scanner } = scan([closeFrame(1012, "r".repeat(124))]);
  expect([scanner.isClosed, scanner.isBetweenFrames, closeFrame(1012, "r".repeat(124)).length]).toEqual([
    true,
    true,
    127,
  ]);
});

test("what is no sequence of frames is not followed", () => {
  const longPing = encodeFrame(opcodes.ping, "p".repeat(126));
  for (const bytes of [encodeFrame(opcodes.continuation, "lost"), longPing]) {
    const { scanner, seen } = scan([bytes, encodeFrame(opcodes.text, "next")]);
    expect([scanner.isBroken, scanner.isBetweenFrames, seen]).toEqual([true, false, []]);
  }
});
