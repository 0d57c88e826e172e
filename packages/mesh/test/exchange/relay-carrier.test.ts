import { asRouterId } from "@espalier/core";
import { expect, test } from "vitest";
import type { ExchangeMeter } from "../../src/exchange/exchange-parts.ts";
import { RelayCarrier } from "../../src/exchange/relay-carrier.ts";
import type { Origin } from "../../src/origin.ts";
import type { PlaneExchange } from "../../src/rows/plane-exchange.ts";
import { createLinkStub } from "./link-stub.ts";

const origin = (router: string, epoch = 1): Origin => ({ router: asRouterId(router), epoch });
/** A frame is `ROUTER EPOCH`, of whom it tells. */
const frameOf = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (frame: Uint8Array): string => new TextDecoder().decode(frame);

interface CarryOptions {
  readonly linked?: readonly string[];
  readonly epochs?: Record<string, number>;
  readonly outlivesWriters?: boolean;
}

/** The carrier of router `self`, in a mesh where `x hears y` stands for routers that are linked. */
function carry({ linked = [], epochs = {}, outlivesWriters = false }: CarryOptions = {}) {
  let tell: (frame: Uint8Array) => void = () => {};
  const taken: string[] = [];
  const delaysMs: (number | undefined)[] = [];
  const refused: string[] = [];
  const counted = { sent: 0, dropped: 0 };
  const peerCounts: number[] = [];
  const known = new Set<string>();
  const plane: PlaneExchange = {
    onFrame(listener) {
      tell = listener;
      return () => {
        tell = () => {};
      };
    },
    setPeerCount: (count) => void peerCounts.push(count),
    addition: { capability: "later", without: (frame) => frameOf(textOf(frame).replace(" with more", "")) },
    fullFrames: () => [frameOf("self 1")],
    relayFrames: () =>
      [...known].map((text) => ({
        origin: origin(text.split(" ")[0]!, Number(text.split(" ")[1])),
        frame: frameOf(text),
      })),
    receive(frame, isCredible = () => true, linkDelayMs) {
      delaysMs.push(linkDelayMs);
      const text = textOf(frame);
      const [router, epoch] = text.split(" ");
      const from = origin(router!, Number(epoch));
      if (router === "unknown") return undefined;
      const isTaken = isCredible(from);
      (isTaken ? taken : refused).push(text);
      const isNews = isTaken && !known.has(text);
      if (isNews) known.add(text);
      return { origin: from, isNews };
    },
  };
  const meter = { sent: () => counted.sent++, dropped: () => counted.dropped++ } as unknown as ExchangeMeter;
  const carrier = new RelayCarrier({
    ...{ plane, channel: "load", kind: "load", meter, outlivesWriters },
    peers: {
      self: origin("self"),
      hears: (one, other) => linked.includes(`${one} hears ${other}`),
      epochOf: (router) => epochs[router],
    },
  });
  carrier.start();
  const link = (router: string, epoch = 1, capabilities: readonly string[] = []) => {
    const stub = createLinkStub(router, epoch, capabilities);
    carrier.linkUp(stub);
    return stub;
  };
  /** What has been sent on a link since the last look. */
  const sent = (stub: ReturnType<typeof link>): string[] => stub.sent.splice(0).map(({ frame }) => textOf(frame));
  return {
    carrier,
    plane,
    link,
    sent,
    taken,
    delaysMs,
    refused,
    counted,
    peerCounts,
    tell: (text: string) => tell(frameOf(text)),
  };
}

test("what a router says of itself goes to every link, and to none that is down", () => {
  const { carrier, link, sent, tell, counted } = carry();
  const [a, b] = [link("a"), link("b")];
  expect([sent(a), sent(b)]).toEqual([["self 1"], ["self 1"]]);
  tell("self 1");
  expect([sent(a), sent(b)]).toEqual([["self 1"], ["self 1"]]);
  carrier.linkDown(a);
  tell("self 1");
  carrier.drained(a);
  expect([sent(a), sent(b)]).toEqual([[], ["self 1"]]);
  expect(counted).toEqual({ sent: 5, dropped: 0 });
  carrier.stop();
  tell("self 1");
  expect(sent(b)).toEqual([]);
});

test("a plane is told to how many peers its frames go, each time that this changes", () => {
  const { carrier, link, peerCounts } = carry();
  const a = link("a");
  link("b");
  carrier.linkDown(a);
  carrier.linkDown(a);
  expect(peerCounts).toEqual([1, 2, 1]);
});

test("a peer without the capability gets frames without what it cannot read, its own and those of others", () => {
  const { carrier, link, sent, tell } = carry();
  const [older, newer, third] = [link("older"), link("newer", 1, ["later"]), link("third", 1, ["later"])];
  for (const stub of [older, newer, third]) sent(stub);
  tell("self 1 with more");
  expect([sent(older), sent(newer)]).toEqual([["self 1"], ["self 1 with more"]]);
  sent(third);
  carrier.frame(third, frameOf("third 1 with more"));
  expect([sent(older), sent(newer)]).toEqual([["third 1"], ["third 1 with more"]]);
});

test("what found no room is counted, and said anew once there is some", () => {
  const { carrier, link, sent, tell, counted } = carry();
  const a = link("a");
  a.isFull = true;
  tell("self 1");
  expect(counted).toEqual({ sent: 1, dropped: 1 });
  a.isFull = false;
  sent(a);
  carrier.drained(a);
  expect(sent(a)).toEqual(["self 1"]);
});

test("news of others goes on to links that do not hear them, once, and not back", () => {
  const { carrier, link, sent } = carry({ linked: ["b hears a"] });
  const [a, b, c] = [link("a"), link("b"), link("c")];
  for (const stub of [a, b, c]) sent(stub);
  for (let time = 0; time < 2; time++) carrier.frame(a, frameOf("a 1"));
  expect([sent(a), sent(b), sent(c)]).toEqual([[], [], ["a 1"]]);
  carrier.frame(a, frameOf("unknown 1"));
  expect([sent(a), sent(b), sent(c)]).toEqual([[], [], []]);
});

test("what comes back of the router itself goes nowhere", () => {
  const { carrier, link, sent } = carry({ epochs: { self: 1 } });
  const [a, b] = [link("a"), link("b")];
  for (const stub of [a, b]) sent(stub);
  carrier.frame(a, frameOf("self 1"));
  expect([sent(a), sent(b)]).toEqual([[], []]);
});

test("a peer that comes is told of others that it does not hear, and not of itself", () => {
  const { carrier, link, sent } = carry({ linked: ["d hears a"], epochs: { far: 3 } });
  const a = link("a");
  for (const text of ["a 1", "far 3"]) carrier.frame(a, frameOf(text));
  expect(sent(a)).toEqual(["self 1"]);
  expect(sent(link("d"))).toEqual(["self 1", "far 3"]);
  expect(sent(link("far", 3))).toEqual(["self 1", "a 1"]);
});

test("a link speaks for its peer in the epoch that it is linked in, and for others only as they are known", () => {
  const { carrier, link, taken, refused } = carry({ epochs: { far: 3, b: 1, a: 7 } });
  const [a] = [link("a", 2), link("b")];
  for (const text of ["a 2", "a 7", "far 3", "far 4", "nobody 1", "b 1"]) carrier.frame(a, frameOf(text));
  expect(taken).toEqual(["a 2", "far 3"]);
  expect(refused).toEqual(["a 7", "far 4", "nobody 1", "b 1"]);
});

// One frame with a far epoch silenced a router's usage for minutes, and its notes for half an hour.
test("a link speaks for routers that have ended and for their earlier epochs, where that is still true, and for no later epoch", () => {
  const { carrier, link, taken, refused } = carry({ epochs: { far: 3, b: 1, a: 7 }, outlivesWriters: true });
  const [a] = [link("a", 2), link("b")];
  for (const text of ["a 2", "a 1", "far 3", "far 2", "nobody 1", "b 1"]) carrier.frame(a, frameOf(text));
  expect(taken).toEqual(["a 2", "a 1", "far 3", "far 2", "nobody 1", "b 1"]);
  for (const text of ["a 7", "far 4", "b 2"]) carrier.frame(a, frameOf(text));
  expect(refused).toEqual(["a 7", "far 4", "b 2"]);
});

test("a router that is no longer linked is spoken for by others again", () => {
  const { carrier, link, taken } = carry({ epochs: { b: 1 } });
  const [a, b] = [link("a"), link("b")];
  carrier.frame(a, frameOf("b 1"));
  expect(taken).toEqual([]);
  carrier.linkDown(b);
  carrier.frame(a, frameOf("b 1"));
  expect(taken).toEqual(["b 1"]);
});

test("a frame comes with half the round trip of its link, once that is measured", () => {
  const { carrier, link, delaysMs } = carry();
  const stub = link("a");
  carrier.frame(stub, frameOf("a 1"));
  stub.roundTripMs = 100;
  carrier.frame(stub, frameOf("a 1"));
  expect(delaysMs).toEqual([Number.NaN, 50]);
});
