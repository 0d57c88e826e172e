import { describe, expect, it } from "vitest";
import { ExchangeNet } from "./exchange-net.ts";

function lineOf(...routers: string[]): ExchangeNet {
  const net = new ExchangeNet();
  for (const router of routers) net.add(router);
  for (let index = 1; index < routers.length; index++) net.connect(routers[index - 1]!, routers[index]!);
  net.time.advance(100);
  return net;
}

const textAt = (net: ExchangeNet, at: string, of: string): string | undefined =>
  net.node(at).replica.notes.heard.get(`${of}@1`);

const noteFrames = (net: ExchangeNet): string[] =>
  net.sent.filter(({ channel }) => channel === "notes").map(({ from, to }) => from + to);

describe("notes", () => {
  it("reach every peer, and are passed on only where they are not heard", () => {
    const net = lineOf("a", "b", "c", "d");
    net.connect("a", "c");
    net.node("a").replica.notes.post("learned");
    net.time.advance(10);
    for (const router of ["b", "c", "d"]) expect(textAt(net, router, "a")).toBe("learned");
    expect(noteFrames(net).sort()).toEqual(["ab", "ac", "cd"]);
    net.time.advance(10_000);
    expect(noteFrames(net)).toHaveLength(3);
  });

  it("of all that are known go to a peer that has just come, those of routers that are gone too", () => {
    const net = lineOf("a", "b");
    net.node("a").replica.notes.post("of a");
    net.node("b").replica.notes.post("of b");
    net.time.advance(10);
    net.node("b").exchange.memberGone(net.node("a").replica.origin);
    net.disconnect("a", "b", "goodbye");
    net.add("c");
    net.connect("b", "c");
    net.time.advance(10);
    expect([textAt(net, "c", "a"), textAt(net, "c", "b")]).toEqual(["of a", "of b"]);
  });

  it("that found no room are sent whole once there is some", () => {
    const net = lineOf("a", "b");
    const link = net.link("a", "b");
    link.isClogged = true;
    link.capacityFrames = 2;
    for (let length = 1; length <= 30; length++) net.node("a").replica.notes.post("x".repeat(length));
    expect(link.waiting.length).toBeLessThanOrEqual(2);
    link.unclog();
    net.time.advance(10);
    expect(textAt(net, "b", "a")).toHaveLength(30);
  });

  it("go to no peer that does not take them, and from it to nobody", () => {
    const net = new ExchangeNet();
    for (const router of ["a", "old", "c"]) net.add(router);
    net.node("old").capabilities.length = 0;
    net.connect("a", "old");
    net.connect("old", "c");
    net.time.advance(100);
    net.node("a").replica.notes.post("learned");
    net.time.advance(1_000);
    expect(noteFrames(net)).toEqual([]);
    net.connect("a", "c");
    net.time.advance(100);
    expect(textAt(net, "c", "a")).toBe("learned");
  });

  it("of a kind that is not known are ignored; those that cannot be read close the link", () => {
    const net = lineOf("a", "b", "c");
    net.deliver("b", "a", "notes", new TextEncoder().encode('{"router":"a","epoch":1}'));
    net.time.advance(10);
    expect([net.ends, noteFrames(net)]).toEqual([[], []]);
    net.deliver("b", "a", "notes", Uint8Array.of(200));
    expect(net.ends).toContain("frame-invalid");
  });
});
