import { asRouterId } from "@espalier/core";
import { describe, expect, it } from "vitest";
import { decodeDocumentMessage } from "../../src/exchange/document-frames.ts";
import type { ExchangeLimits } from "../../src/exchange/exchange-parts.ts";
import type { LogReplica } from "../log-replica.ts";
import { ExchangeNet } from "./exchange-net.ts";

/** Routers with state, which have finished joining. */
function settledNet(routers: readonly string[], limits: Partial<ExchangeLimits> = {}): ExchangeNet {
  const net = new ExchangeNet(limits);
  for (const router of routers) net.add(router);
  net.connectAll();
  net.time.advance(2_000);
  for (const { replica } of net.nodes.values()) {
    replica.unavailable.length = 0;
    replica.given.length = 0;
  }
  return net;
}

const fill = (replica: LogReplica, count: number, bytes = 1_000): void => {
  for (let index = 0; index < count; index++) replica.state.add(`t${index}:${"x".repeat(bytes)}`);
};

const origin = (router: string) => ({ router: asRouterId(router), epoch: 1 });

describe("a router that joins", () => {
  it("asks one peer for everything, and for journals only after that", () => {
    const net = settledNet(["a", "b", "c"]);
    for (const router of ["a", "b", "c"]) fill(net.node(router).replica, 500);
    for (let index = 0; index < 100; index++) net.node("a").replica.write(new Uint8Array(1_000));
    net.time.advance(100);
    net.add("d");
    for (const router of ["a", "b", "c"]) net.connect(router, "d");
    const { replica, exchange } = net.node("d");
    expect(exchange.conditions.snapshot()).toBe(false);
    let fetchesBefore = 0;
    for (let step = 0; step < 5_000 && !exchange.conditions.snapshot(); step++) {
      fetchesBefore = net
        .frames("d", "a", "documents")
        .filter(({ bytes }) => decodeDocumentMessage(bytes).kind === "want").length;
      net.time.advance(1);
    }
    expect(fetchesBefore).toBe(0);
    expect(replica.state.size).toBe(500);
    net.time.advance(500);
    expect(exchange.conditions.journals()).toBe(true);
    expect(replica.digest()).toBe(net.node("a").replica.digest());
    const given = ["a", "b", "c"].map((router) => net.node(router).replica.given.length);
    expect(given.reduce((sum, count) => sum + count)).toBe(1);
  });

  it("turns to another peer when the first is lost, and throws away what it got", () => {
    const net = settledNet(["a", "b"]);
    for (const router of ["a", "b"]) fill(net.node(router).replica, 2_000);
    net.add("d");
    net.connect("a", "d");
    net.connect("b", "d");
    net.time.advance(4);
    const first = net.node("a").replica.given.length > 0 ? "a" : "b";
    const second = first === "a" ? "b" : "a";
    expect(net.node("d").replica.stateFrames.length).toBeGreaterThan(0);
    net.disconnect(first, "d");
    net.time.advance(5_000);
    expect(net.node("d").replica.aborted).toBe(1);
    expect(net.node("d").replica.state.size).toBe(2_000);
    expect(net.node(second).replica.given).toHaveLength(1);
  });

  it("turns to another peer after five seconds of silence", () => {
    const net = settledNet(["a", "b"]);
    for (const router of ["a", "b"]) fill(net.node(router).replica, 2_000);
    net.add("d");
    net.connect("a", "d");
    net.time.advance(4);
    net.link("a", "d").isClogged = true;
    net.connect("b", "d");
    net.time.advance(4_900);
    expect(net.node("b").replica.given).toHaveLength(0);
    net.time.advance(2_000);
    expect(net.node("d").replica.state.size).toBe(2_000);
    expect(net.node("d").replica.mostImports).toBe(1);
  });

  it("waits for one that has state while peers may still be found, and goes on without when there is none", () => {
    const net = new ExchangeNet();
    net.add("a");
    net.add("b");
    for (const { mayComeMore } of net.nodes.values()) expect(mayComeMore).toBe(false);
    for (const node of net.nodes.values()) node.mayComeMore = true;
    net.connect("a", "b");
    net.time.advance(2_000);
    expect(net.node("a").replica.unavailable).toEqual([]);
    expect(net.node("a").exchange.conditions.snapshot()).toBe(false);
    for (const node of net.nodes.values()) node.mayComeMore = false;
    net.time.advance(500);
    for (const { replica, exchange } of net.nodes.values()) {
      expect(replica.unavailable).toEqual([{ targets: undefined, from: undefined }]);
      expect(exchange.conditions.snapshot()).toBe(true);
    }
    fill(net.node("a").replica, 3);
    net.add("c");
    net.connect("b", "c");
    net.connect("a", "c");
    net.time.advance(1_000);
    expect(net.node("c").exchange.conditions.snapshot()).toBe(true);
  });

  it("is sent nothing by one that joins itself", () => {
    const net = new ExchangeNet();
    const a = net.add("a");
    a.mayComeMore = true;
    fill(a.replica, 3);
    net.add("b").mayComeMore = true;
    net.connect("a", "b");
    net.time.advance(1_000);
    expect(a.replica.given).toEqual([]);
  });
});

describe("requests for targets", () => {
  it("go to who is known to have them, those of one moment together", () => {
    const net = settledNet(["a", "b", "c"]);
    for (const router of ["a", "b"]) fill(net.node(router).replica, 10);
    const { replica } = net.node("c");
    replica.ask({ targets: ["t1"], from: origin("b") });
    replica.ask({ targets: ["t2"], from: origin("b") });
    replica.ask({ targets: ["t3", "t2"], from: origin("b") });
    net.time.advance(100);
    expect(net.node("b").replica.given.map(({ targets }) => targets)).toEqual([["t1"], ["t2", "t3"]]);
    expect(net.node("a").replica.given).toEqual([]);
    expect([...replica.state].map((word) => word.slice(0, 2)).sort()).toEqual(["t1", "t2", "t3"]);
    expect(replica.mostImports).toBe(1);
  });

  it("go to another linked peer when that one is not, and are told when nobody is left", () => {
    const net = settledNet(["a", "b"]);
    fill(net.node("a").replica, 2);
    const { replica } = net.node("b");
    replica.ask({ targets: ["t1"], from: origin("z") });
    net.time.advance(100);
    expect(replica.state.size).toBe(1);
    net.disconnect("a", "b");
    replica.ask({ targets: ["t0"], from: origin("a") });
    net.time.advance(1_000);
    expect(replica.unavailable).toEqual([{ targets: ["t0"], from: origin("a") }]);
  });

  /**
   * Two routers that both waited for a target asked each other for it time and again, because each knew most of the
   * documents, and the one that had it was never asked.
   */
  it("go on to others with what an answer lacked, and are the replica's again when nobody has it", () => {
    const net = settledNet(["a", "b", "c", "d"]);
    fill(net.node("d").replica, 2);
    const { replica } = net.node("a");
    for (const router of ["b", "c"]) fill(net.node(router).replica, 1);
    replica.ask({ targets: ["t0", "t1", "t2"], from: origin("b") });
    net.time.advance(1_000);
    expect([...replica.state].map((word) => word.slice(0, 2)).sort()).toEqual(["t0", "t1"]);
    expect(net.node("b").replica.given.map(({ targets }) => targets)).toEqual([["t0", "t1", "t2"]]);
    expect(net.node("d").replica.given.map(({ targets }) => targets?.includes("t0"))).toEqual([false]);
    expect(replica.unavailable).toEqual([]);
    replica.ask({ targets: ["t2"], from: undefined });
    net.time.advance(1_000);
    for (const router of ["b", "c", "d"]) expect(net.node(router).replica.given.at(-1)?.targets).toEqual(["t2"]);
  });

  it("past the bound of those that wait are answered at once: nobody has it", () => {
    const net = settledNet(["a", "b"], { maxSnapshotRequests: 2 });
    net.link("a", "b").isClogged = true;
    const { replica } = net.node("b");
    for (let index = 0; index < 4; index++) replica.ask({ targets: [`t${index}`], from: undefined });
    expect(replica.unavailable).toEqual([{ targets: ["t3"], from: undefined }]);
  });

  it("past the bound of targets are split over several", () => {
    const net = settledNet(["a", "b"], { maxTargetsPerRequest: 3 });
    fill(net.node("a").replica, 10);
    const { replica } = net.node("b");
    for (let index = 0; index < 8; index++) replica.ask({ targets: [`t${index}`], from: undefined });
    net.time.advance(1_000);
    expect(replica.state.size).toBe(8);
    const asked = net.node("a").replica.given.map(({ targets }) => targets?.length);
    expect(asked).toEqual([1, 3, 3, 1]);
    replica.ask({ targets: Array.from({ length: 7 }, (_, index) => `t${index}`), from: undefined });
    net.time.advance(1_000);
    const then = net.node("a").replica.given.map(({ targets }) => targets?.length);
    expect(then.slice(4)).toEqual([3, 3, 1]);
  });

  it("end with the exchange", () => {
    const net = settledNet(["a", "b"]);
    fill(net.node("a").replica, 2_000);
    const { replica, exchange } = net.node("b");
    replica.ask({ targets: undefined, from: undefined });
    replica.ask({ targets: undefined, from: undefined });
    net.time.advance(3);
    expect(replica.activeImports).toBe(1);
    exchange.stop();
    expect(replica.activeImports).toBe(0);
    replica.ask({ targets: ["t1"], from: undefined });
    expect(net.node("a").replica.given).toHaveLength(1);
  });
});
