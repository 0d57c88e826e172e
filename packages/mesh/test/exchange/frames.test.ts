import { createSeededRandom } from "@espalier/core";
import { describe, expect, it } from "vitest";
import { type BulkMessage, decodeBulkMessage, encodeBulkMessage } from "../../src/exchange/bulk-transfer.ts";
import {
  type DocumentMessage,
  decodeDocumentMessage,
  documentPiece,
  encodeDocumentMessage,
} from "../../src/exchange/document-frames.ts";
import { ExchangeNet, text } from "./exchange-net.ts";

const statement = {
  target: "engine/0",
  epoch: "3.17.ab",
  sequence: 2 ** 40,
  isComplete: true,
  blocks: 12,
  digest: [0xffffffff, 1] as const,
};

const documentMessages: DocumentMessage[] = [
  { kind: "open", number: 7, documentKind: "own", name: "journal/default/a/1" },
  { kind: "update", number: 7, from: 5, to: 9, committedWallMs: 1_700_000_000_000, bytes: Uint8Array.of(1, 2, 3) },
  { kind: "vector", isFirst: true, canServe: false, entries: [{ number: 1, version: 0xffffffff }] },
  { kind: "vector", isFirst: false, canServe: true, entries: [] },
  { kind: "want", request: 300, name: "registry/1", stateVector: Uint8Array.of() },
  { kind: "cancel", request: 1 },
  { kind: "snapshot-want", request: 2, targets: undefined },
  { kind: "snapshot-want", request: 2, targets: ["x", "y"] },
  { kind: "statements", statements: [statement, { ...statement, isComplete: false }] },
];

const bulkMessages: BulkMessage[] = [
  { kind: "part", request: 1, goesOn: true, bytes: Uint8Array.of(9) },
  { kind: "part", request: 2 ** 33, goesOn: false, bytes: Uint8Array.of() },
  { kind: "end", request: 1, outcome: "busy" },
  { kind: "credit", bytes: 65_536 },
];

describe("frames of the exchange", () => {
  it.each(documentMessages)("come back as they were: %j", (message) => {
    expect(decodeDocumentMessage(encodeDocumentMessage(message))).toEqual(message);
  });

  it.each(bulkMessages)("come back as they were: %j", (message) => {
    expect(decodeBulkMessage(encodeBulkMessage(message))).toEqual(message);
  });

  it("a piece of a document comes back as it was; cut, or beyond all clocks, it is refused", () => {
    const piece = { from: 300, to: 2 ** 53 - 1, bytes: Uint8Array.of(1, 2) };
    const frame = documentPiece.encode(piece);
    expect(documentPiece.decode(frame)).toEqual(piece);
    for (let length = 0; length < frame.length - 2; length++)
      expect(() => documentPiece.decode(frame.subarray(0, length))).toThrow(RangeError);
    expect(() => documentPiece.decode(documentPiece.encode({ ...piece, to: 2 ** 53 }))).toThrow(RangeError);
  });

  it("are refused with a RangeError when anything is missing or too much", () => {
    // The last field of these reaches to the end of the frame, whatever its length.
    const isOpenEnded = ({ kind }: DocumentMessage): boolean => kind === "want" || kind === "update";
    for (const message of documentMessages.filter((one) => !isOpenEnded(one))) {
      const frame = encodeDocumentMessage(message);
      for (let length = 0; length < frame.length; length++) {
        expect(() => decodeDocumentMessage(frame.subarray(0, length))).toThrow(RangeError);
      }
      expect(() => decodeDocumentMessage(Uint8Array.of(...frame, 0))).toThrow(RangeError);
    }
    expect(() => decodeBulkMessage(Uint8Array.of(3, 1, 0))).toThrow(RangeError);
  });

  it.each([
    ["an unknown type", [99]],
    ["no type", []],
    ["an unknown kind of document", [1, 0, 3, 1, 65]],
    ["a document without a name", [1, 0, 0, 0]],
    ["unknown flags of a vector", [3, 4, 0]],
    ["more entries than bytes", [3, 0, 5, 1]],
    ["more entries than are allowed", [3, 0, 0x81, 0x20]],
    ["a flag that is none", [6, 1, 2]],
    ["a clock that is too large", [2, 1, 255, 255, 255, 255, 255, 255, 255, 15, 1, 1]],
  ])("are refused: %s", (_, bytes) => {
    expect(() => decodeDocumentMessage(Uint8Array.from(bytes))).toThrow(RangeError);
  });

  it("with a name or a state vector one byte past its bound are refused", () => {
    const name = "n".repeat(1024);
    const open = (longer: string) =>
      encodeDocumentMessage({ kind: "open", number: 1, documentKind: "journal", name: longer });
    expect(decodeDocumentMessage(open(name))).toMatchObject({ name });
    expect(() => decodeDocumentMessage(open(`${name}n`))).toThrow(RangeError);
    const want = (bytes: number) =>
      encodeDocumentMessage({ kind: "want", request: 1, name: "x", stateVector: new Uint8Array(bytes) });
    expect(decodeDocumentMessage(want(65_536))).toMatchObject({ kind: "want" });
    expect(() => decodeDocumentMessage(want(65_537))).toThrow(RangeError);
  });

  it("of 4,096 entries pass, and one more does not", () => {
    const vector = (count: number) =>
      encodeDocumentMessage({
        kind: "vector",
        isFirst: true,
        canServe: true,
        entries: Array.from({ length: count }, (_, number) => ({ number, version: 1 })),
      });
    expect(decodeDocumentMessage(vector(4096))).toMatchObject({ kind: "vector" });
    expect(() => decodeDocumentMessage(vector(4097))).toThrow(RangeError);
  });
});

describe("arbitrary bytes", () => {
  it("close their link with a named error, or are a frame; they never do anything else", () => {
    const random = createSeededRandom(4711);
    const templates = [
      ...documentMessages.map((message) => ["documents", encodeDocumentMessage(message)] as const),
      ...bulkMessages.map((message) => ["bulk", encodeBulkMessage(message)] as const),
      ["load", Uint8Array.of(1, 2, 3)] as const,
    ];
    let closed = 0;
    const net = new ExchangeNet();
    net.add("a");
    net.add("b");
    net.node("a").replica.write(text("one"));
    for (let round = 0; round < 3_000; round++) {
      net.connect("a", "b");
      const [channel, template] = templates[random.integer(templates.length)]!;
      const frame = template.slice();
      for (let changes = 1 + random.integer(3); changes > 0; changes--) {
        frame[random.integer(frame.length || 1)] = random.integer(256);
      }
      net.deliver("b", "a", channel, frame.subarray(0, 1 + random.integer(frame.length)));
      if (round % 10 === 0) net.time.advance(5);
    }
    closed = net.invalid.length;
    expect(closed).toBeGreaterThan(500);
    for (const error of net.invalid) expect(error).toMatch(/^EspalierError/);
    net.connect("a", "b");
    net.time.advance(2_000);
    expect(net.node("b").replica.documents.state("journal/default/a/1")?.clock).toBe(1);
  });
});
