import { asRouterId } from "@espalier/core";
import { createCountingMeter } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { describeMember } from "../../src/exchange/backend.ts";
import { versionOf } from "../../src/exchange/document-broadcaster.ts";
import { createExchangeMeter } from "../../src/exchange/exchange-parts.ts";
import { forbiddenByte, LogReplica, sharedName } from "../log-replica.ts";
import { ExchangeNet, text } from "./exchange-net.ts";
import { createLinkStub } from "./link-stub.ts";

function meteredPair() {
  const meter = createCountingMeter();
  const net = new ExchangeNet({}, meter);
  net.add("a");
  net.add("b");
  net.connect("a", "b");
  net.time.advance(1_000);
  return { meter, net };
}

describe("metrics of the exchange", () => {
  it("count bytes by what they carry, and observe the lag of changes", () => {
    const { meter, net } = meteredPair();
    const sent = (kind: string): number => meter.value("espalier_mesh_exchange_bytes_total", kind);
    expect(sent("vector")).toBeGreaterThan(0);
    expect(sent("load")).toBeGreaterThan(0);
    expect(sent("update")).toBe(0);
    net.node("a").replica.write(text("one"));
    net.time.advance(10);
    expect(sent("update")).toBeGreaterThan(10);
    expect(meter.value("espalier_mesh_replication_lag_seconds")).toBe(1);
    expect(net.node("b").exchange.lagMs(net.link("b", "a"))).toBe(1);
    expect(net.node("a").exchange.lagMs(net.link("a", "b"))).toBeUndefined();
  });

  it("count drops and what they lead to", () => {
    const { meter, net } = meteredPair();
    const link = net.link("a", "b");
    link.full.add("documents");
    for (let index = 0; index < 10; index++) net.node("a").replica.write(text(`item ${index}`));
    expect(meter.value("espalier_mesh_exchange_dropped_frames_total", "update")).toBeLessThanOrEqual(1);
    link.full.clear();
    link.send("load", Uint8Array.of(0));
    net.disconnect("a", "b");
    net.connect("a", "b");
    net.time.advance(1_000);
    expect(meter.value("espalier_mesh_resyncs_total", "vector")).toBe(1);
    expect(meter.value("espalier_mesh_resyncs_total", "gap")).toBe(0);
    expect(meter.value("espalier_mesh_exchange_bytes_total", "piece")).toBeGreaterThan(0);
  });

  it("count what is refused and what cannot be read, each once", () => {
    const { meter, net } = meteredPair();
    net.node("a").replica.write(Uint8Array.of(forbiddenByte));
    net.time.advance(10);
    expect(meter.value("espalier_mesh_refused_updates_total")).toBe(1);
    net.connect("a", "b");
    net.deliver("b", "a", "bulk", Uint8Array.of(99));
    net.connect("a", "b");
    net.deliver("b", "a", "documents", Uint8Array.of(99));
    net.connect("a", "b");
    net.deliver("b", "a", "load", Uint8Array.of(99));
    for (const channel of ["bulk", "documents", "load"]) {
      expect(meter.value("espalier_mesh_invalid_frames_total", channel)).toBe(1);
    }
  });

  it("count snapshots by how they end", () => {
    const { meter, net } = meteredPair();
    const count = (outcome: string): number => meter.value("espalier_mesh_snapshots_total", outcome);
    // Both have just come, and neither has anything to give.
    expect(count("unavailable")).toBe(2);
    expect(count("imported")).toBe(0);
    net.node("b").replica.ask({ targets: ["x"], from: undefined });
    net.time.advance(100);
    expect(count("imported")).toBe(1);
    expect(count("served")).toBe(1);
    net.node("b").replica.ask({ targets: ["x"], from: undefined });
    net.disconnect("a", "b");
    expect(count("failed")).toBe(1);
    expect(count("unavailable")).toBe(3);
  });

  it("never observe a lag below zero", () => {
    const observed: number[] = [];
    const silent = createCountingMeter();
    const meter = createExchangeMeter({
      ...silent,
      histogram: () => ({ series: () => ({ observe: (value) => void observed.push(value) }), forget: () => {} }),
    });
    meter.lag(-5);
    meter.lag(20);
    expect(observed).toEqual([0, 0.02]);
  });
});

describe("versions of documents", () => {
  it("are the writer's clock, or the same hash in routers that have the same", () => {
    const a = new LogReplica("a");
    const b = new LogReplica("b");
    expect(versionOf(a.documents, a.ownName)).toBe(0);
    a.write(text("one"));
    expect(versionOf(a.documents, a.ownName)).toBe(1);
    expect(versionOf(a.documents, "journal/default/z/1")).toBe(0);
    const before = versionOf(a.documents, sharedName);
    expect(versionOf(b.documents, sharedName)).toBe(before);
    a.documents.onUpdate((update) => b.documents.apply(update));
    a.write(text("two"), sharedName);
    expect(versionOf(a.documents, sharedName)).not.toBe(before);
    expect(versionOf(b.documents, sharedName)).toBe(versionOf(a.documents, sharedName));
  });
});

describe("a member as operators see it", () => {
  const member = {
    origin: { router: asRouterId("b"), epoch: 5 },
    state: "suspect",
    isDraining: true,
    isLinked: false,
    unreachable: [],
  } as const;

  it("has nulls and zeros where there is no link", () => {
    const described = describeMember({
      member,
      address: undefined,
      link: undefined,
      rates: undefined,
      lagMs: undefined,
    });
    expect(described).toEqual({
      router: "b",
      epoch: 5,
      state: "suspect",
      isDraining: true,
      region: null,
      address: null,
      isLinked: false,
      roundTripMs: null,
      lagMs: null,
      sentBytes: 0,
      receivedBytes: 0,
      sentBytesPerS: 0,
      receivedBytesPerS: 0,
      bufferedBytes: 0,
    });
  });

  it("has what its link tells, and no round trip before the first", () => {
    const link = createLinkStub("b", 5);
    link.stats.sentBytes = 12;
    const facts = { member, address: "10.0.0.2:7000", link, lagMs: 3 };
    const described = describeMember({ ...facts, rates: { sentBytesPerS: 1.4, receivedBytesPerS: 2.6 } });
    expect(described).toMatchObject({ isLinked: true, roundTripMs: null, lagMs: 3, sentBytes: 12 });
    expect(described).toMatchObject({ sentBytesPerS: 1, receivedBytesPerS: 3, address: "10.0.0.2:7000" });
    link.roundTripMs = 0.7;
    expect(describeMember({ ...facts, rates: undefined }).roundTripMs).toBe(0.7);
  });
});
