import { describe, expect, it } from "vitest";
import { decodeBulkMessage } from "../../src/exchange/bulk-transfer.ts";
import { decodeDocumentMessage, encodeDocumentMessage } from "../../src/exchange/document-frames.ts";
import { ExchangeNet, text } from "./exchange-net.ts";

const open = (number: number, name: string) =>
  encodeDocumentMessage({ kind: "open", number, documentKind: "journal", name });
const vector = (...entries: { number: number; version: number }[]) =>
  encodeDocumentMessage({ kind: "vector", isFirst: false, canServe: true, entries });

function pairOf(limits = {}): ExchangeNet {
  const net = new ExchangeNet(limits);
  net.add("a");
  net.add("b");
  net.connect("a", "b");
  net.time.advance(1_000);
  return net;
}

const fetchesOf = (net: ExchangeNet, from: string, to: string): string[] =>
  net.frames(from, to, "documents").flatMap(({ bytes }) => {
    const message = decodeDocumentMessage(bytes);
    return message.kind === "want" ? [message.name] : [];
  });

describe("bounds of the exchange of documents", () => {
  it("a number past the last one closes the link", () => {
    const net = pairOf({ maxDocumentNumbers: 4 });
    net.deliver("b", "a", "documents", open(3, "journal/default/x/1"));
    expect(net.invalid).toEqual([]);
    net.deliver("b", "a", "documents", open(4, "journal/default/y/1"));
    expect(net.invalid).toHaveLength(1);
  });

  it("a number without a name closes the link", () => {
    const net = pairOf();
    net.deliver("b", "a", "documents", vector({ number: 17, version: 1 }));
    expect(net.invalid).toHaveLength(1);
  });

  it("a number given again stands for the new name only", () => {
    const net = pairOf();
    net.deliver("b", "a", "documents", open(9, "journal/default/x/1"));
    net.deliver("b", "a", "documents", vector({ number: 9, version: 5 }));
    net.deliver("b", "a", "documents", open(9, "journal/default/y/1"));
    net.deliver("b", "a", "documents", vector({ number: 9, version: 1 }));
    net.time.advance(100);
    expect(fetchesOf(net, "b", "a")).toEqual(["journal/default/x/1", "journal/default/y/1"]);
  });

  it("documents that are lacking past the bound wait for the next telling", () => {
    const net = pairOf({ maxLackingDocuments: 2 });
    for (let number = 5; number < 8; number++) {
      net.deliver("b", "a", "documents", open(number, `journal/default/x/${number}`));
      net.deliver("b", "a", "documents", vector({ number, version: 1 }));
    }
    expect(fetchesOf(net, "b", "a")).toHaveLength(2);
    net.time.advance(100);
    net.deliver("b", "a", "documents", vector({ number: 7, version: 1 }));
    expect(fetchesOf(net, "b", "a")).toHaveLength(3);
  });

  it("diffs asked of one peer at a time end at the bound, and the rest follows", () => {
    const net = new ExchangeNet({ maxFetchesPerLink: 2 });
    const a = net.add("a").replica;
    for (let number = 1; number <= 6; number++) {
      const bytes = Uint8Array.of(0, 0, 1, number);
      a.documents.apply({ name: `journal/default/x/${number}`, from: 0, to: 1, bytes });
    }
    net.add("b");
    net.connect("a", "b");
    let most = 0;
    for (let step = 0; step < 2_000; step++) {
      net.time.advance(1);
      const answered = net.frames("a", "b", "bulk").filter(({ bytes }) => bytes[0] === 2).length;
      most = Math.max(most, fetchesOf(net, "b", "a").length - answered);
    }
    expect(most).toBeLessThanOrEqual(2);
    expect(net.digests().size).toBe(1);
  });

  it("names of documents that were given up are remembered up to the bound, the oldest go", () => {
    const net = new ExchangeNet({ maxRefusedDocuments: 1 });
    const a = net.add("a").replica;
    const names = ["journal/default/x/1", "journal/default/x/2"];
    for (const name of names) a.documents.apply({ name, from: 0, to: 1, bytes: Uint8Array.of(0, 0, 1, 1) });
    net.add("b", (replica) => {
      for (const name of names) replica.dropped.add(name);
    });
    net.connect("a", "b");
    net.time.advance(500);
    expect(fetchesOf(net, "b", "a").sort()).toEqual(names);
    net.time.advance(25_000);
    expect(fetchesOf(net, "b", "a").length).toBeLessThan(20);
  });

  it("a change one byte past what is sent as it happens is asked for instead", () => {
    const net = pairOf({ maxLiveUpdateBytes: 104 });
    net.sent.length = 0;
    net.node("a").replica.write(new Uint8Array(101));
    net.time.advance(10);
    expect(fetchesOf(net, "b", "a")).toEqual([]);
    net.node("a").replica.write(new Uint8Array(102));
    net.time.advance(10);
    expect(fetchesOf(net, "b", "a")).toHaveLength(1);
    expect(net.digests().size).toBe(1);
  });

  it("an answer past those that one link may have waiting is asked for again", () => {
    const net = new ExchangeNet({ maxAnswersPerLink: 1, maxFetchesPerLink: 8 });
    const a = net.add("a").replica;
    for (let number = 1; number <= 4; number++) {
      const name = `journal/default/x/${number}`;
      a.documents.apply({ name, from: 0, to: 1, bytes: Uint8Array.of(0, 0, 1, number) });
    }
    a.write(text("own"));
    net.add("b");
    net.connect("a", "b");
    net.time.advance(5_000);
    expect(net.digests().size).toBe(1);
  });

  // The link was closed, and the peer asked again as soon as it had dialed.
  it("requests with a state vector that cannot be read fail alone: the link stays, and the log says it once", () => {
    const net = pairOf();
    net.node("a").replica.write(text("one"));
    const name = "journal/default/a/1";
    const want = (request: number, stateVector: Uint8Array) =>
      net.deliver("a", "b", "documents", encodeDocumentMessage({ kind: "want", request, name, stateVector }));
    want(101, Uint8Array.of(255));
    want(102, Uint8Array.of());
    want(103, Uint8Array.of(255));
    net.time.advance(10);
    expect([net.ends, net.invalid]).toEqual([[], []]);
    const ends = net.frames("a", "b", "bulk").flatMap(({ bytes }) => {
      const message = decodeBulkMessage(bytes);
      return message.kind === "end" ? [[message.request, message.outcome]] : [];
    });
    expect(Object.fromEntries(ends)).toMatchObject({ 101: "failed", 102: "whole", 103: "failed" });
    const from = "b@1";
    expect(net.node("a").logger.lines).toMatchObject([{ level: "info", fields: { from } }]);
  });
});

describe("what local code throws", () => {
  it("when it computes an answer fails that answer and is a warning here: the link stays", () => {
    const net = pairOf();
    const { replica, logger } = net.node("a");
    replica.write(text("one"));
    replica.documents.diff = function* () {
      yield* [];
      throw new RangeError("a defect");
    };
    const want = { kind: "want", request: 101, name: "journal/default/a/1", stateVector: Uint8Array.of() } as const;
    net.deliver("a", "b", "documents", encodeDocumentMessage(want));
    net.time.advance(10);
    expect([net.ends, net.invalid]).toEqual([[], []]);
    expect(decodeBulkMessage(net.frames("a", "b", "bulk").at(-1)!.bytes)).toMatchObject({ outcome: "failed" });
    expect(logger.lines).toMatchObject([{ level: "warn" }]);
  });

  // Every RangeError was taken for bytes that cannot be read.
  it.each([RangeError, TypeError])("when it takes a readable frame is not blamed on the peer: %o", (Defect) => {
    const net = pairOf();
    const { exchange, replica } = net.node("b");
    const link = net.link("b", "a");
    const fail = (): never => {
      throw new Defect("a defect");
    };
    const name = "journal/default/x/1";
    exchange.frame(link, "documents", open(9, name));
    replica.documents.apply = fail;
    const update = { kind: "update", number: 9, from: 0, to: 1, committedWallMs: 0, bytes: Uint8Array.of(1) } as const;
    expect(() => exchange.frame(link, "documents", encodeDocumentMessage(update))).toThrow(Defect);
    for (const [channel, plane] of [
      ["load", replica.load],
      ["notes", replica.notes],
    ] as const) {
      plane.receive = fail;
      expect(() => exchange.frame(link, channel, Uint8Array.of(1))).toThrow(Defect);
    }
    expect(net.ends).toEqual([]);
  });
});
