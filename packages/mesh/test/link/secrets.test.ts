import { describe, expect, test } from "vitest";
import { maxRefusedPeers, refusedListedMs } from "../../src/link/links.ts";
import { maxSecrets, provedSecret } from "../../src/wire/link-frames.ts";
import { LinksRig, type TestRouter } from "./links-rig.ts";
import { acceptFrame, dialRaw, listenRaw } from "./raw-peer.ts";

const knowing = (...secrets: readonly string[]) => ({ security: { kind: "secret", secrets } as const });

const linkCounts = (routers: readonly TestRouter[]): number[] => routers.map(({ links }) => links.links().length);

describe("routers that know several secrets", () => {
  test.each([
    [["new", "old"], ["old"]],
    [["old", "new"], ["new"]],
    [
      ["new", "old"],
      ["old", "new"],
    ],
    [
      ["a", "b", "c", "x"],
      ["d", "e", "f", "x"],
    ],
  ])("are linked where one of %j is one of %j, whoever dials", async (first, second) => {
    for (const [dialer, acceptor] of [
      [first, second],
      [second, first],
    ] as const) {
      const [a, b] = await new LinksRig().pair(knowing(...dialer), knowing(...acceptor));
      expect([a.events, b.events]).toEqual([["up b@1"], ["up a@1"]]);
    }
  });

  test("refuse each other where they have none in common", async () => {
    const [a, b] = await new LinksRig().pair(knowing("a", "b", "c", "d"), knowing("e", "f", "g", "h"));
    expect([a.events, b.events]).toEqual([["failed b:1 secret"], []]);
  });

  test("are told of as refused at both ends, until they are linked", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair(knowing("one"), knowing("other"));
    rig.time.advance(30_000);
    const [dialer] = a.links.refused();
    const [acceptor] = b.links.refused();
    expect(dialer).toMatchObject({ address: "b:1", by: "peer", claimed: "b at b:1", reason: "secret" });
    expect(acceptor).toMatchObject({ address: "a", by: "self", claimed: "a at a:1", reason: "secret" });
    expect(dialer?.count).toBeGreaterThan(10);
    expect(dialer!.lastMs - dialer!.firstMs).toBeGreaterThan(20_000);
    b.links.setSecrets(["one"]);
    rig.time.advance(3_000);
    expect([a.links.links().length, a.links.refused(), b.links.refused()]).toEqual([1, [], []]);
  });

  test("are told of for half an hour", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair(knowing("one"), knowing("other"));
    const { lastMs } = b.links.refused()[0]!;
    await a.links.stop();
    rig.time.advance(lastMs + refusedListedMs - rig.time.clock.wallMs() - 1);
    expect(b.links.refused()).toHaveLength(1);
    rig.time.advance(1);
    expect(b.links.refused()).toEqual([]);
  });

  test("are listed up to a bound, the latest first, and one that is linked again is listed no more", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a", knowing("one"));
    for (let at = 0; at <= maxRefusedPeers; at++) {
      await rig.start(`b${at}`, knowing("other"));
      a.links.dial(`b${at}:1`);
      rig.time.advance(1);
    }
    rig.time.advance(500);
    const refused = a.links.refused();
    expect([refused.length, refused[0]?.address, refused.at(-1)?.address]).toEqual([maxRefusedPeers, "b32:1", "b1:1"]);
    a.links.setSecrets(["other"]);
    rig.time.advance(3_000);
    expect([a.links.links().length, a.links.refused()]).toEqual([maxRefusedPeers + 1, []]);
  });

  test("prove only their own to a peer that takes one proof, and the one that was proved to whoever dials", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a", knowing("own", "older"));
    const { peers } = await listenRaw(rig, "b:1");
    a.links.dial("b:1");
    rig.time.advance(10);
    const [plain] = peers;
    plain!.send(plain!.hello());
    expect(plain!.heard.frames[1]).toHaveLength(33);
    plain!.send(plain!.proof("acceptor", "older"));
    expect(a.events).toEqual(["failed b:1 secret"]);
    rig.time.advance(2_000);
    const several = peers.at(-1)!;
    several.send(several.hello({ capabilities: ["secrets"] }));
    expect(several.heard.frames[1]).toHaveLength(65);

    const dialer = await dialRaw(rig, "a:1");
    const dialerHello = dialer.hello({ capabilities: ["secrets"] });
    dialer.send(dialerHello);
    dialer.send(dialer.proof("dialer", "unknown", "older"));
    const [acceptorHello, answer] = dialer.heard.frames;
    const transcript = { dialerHello, acceptorHello: acceptorHello!, version: 1 };
    expect(answer).toHaveLength(33);
    expect(provedSecret(answer!, ["own", "older"], "acceptor", transcript)).toBe("older");
    dialer.send(acceptFrame);
    expect(a.events).toContain("up raw@1");
  });

  test.each([
    [0, "handshake-invalid"],
    [maxSecrets, undefined],
    [maxSecrets + 1, "handshake-invalid"],
  ])("take %d proofs at once: %s", async (count, reason) => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    peer.send(peer.hello());
    const [one] = [peer.proof().subarray(1)];
    const frame = new Uint8Array(1 + 32 * count);
    frame[0] = 2;
    for (let at = 0; at < count; at++) frame.set(one!, 1 + 32 * at);
    peer.send(frame, acceptFrame);
    expect(b.events).toEqual(reason === undefined ? ["up raw@1"] : []);
    expect(b.meter.value("espalier_mesh_rejects_total", "handshake-invalid")).toBe(reason === undefined ? 0 : 1);
  });

  test.each([
    ["none", []],
    ["an empty one", ["a", ""]],
    ["five", ["a", "b", "c", "d", "e"]],
  ])("%s cannot be", async (_, secrets) => {
    const rig = new LinksRig();
    await expect(rig.start("a", knowing(...secrets))).rejects.toThrow(RangeError);
    const b = await rig.start("b");
    expect(() => b.links.setSecrets(secrets)).toThrow(RangeError);
  });

  test("are none where links are made without a secret", async () => {
    const a = await new LinksRig().start("a", { security: { kind: "mutual-tls" } });
    expect(() => a.links.setSecrets(["new"])).toThrow(TypeError);
  });
});

describe("a change of the secret", () => {
  /** Lets time pass, and tells the fewest links that any router had. */
  function fewest(rig: LinksRig, routers: readonly TestRouter[], ms: number): number {
    let least = Number.POSITIVE_INFINITY;
    for (let at = 0; at < ms; at += 5) {
      rig.time.advance(5);
      least = Math.min(least, ...linkCounts(routers));
    }
    return least;
  }

  test.each([
    ["that every router is told of first", [["old", "new"], ["new", "old"], ["new"]]],
    ["that comes with the old one accepted", [["new", "old"], ["new"]]],
  ])("%s, router by router, leaves every router linked at any time", async (_, steps) => {
    const rig = new LinksRig();
    const routers: TestRouter[] = [];
    for (const name of ["a", "b", "c", "d"]) routers.push(await rig.start(name, knowing("old")));
    for (const router of routers) {
      for (const other of routers) if (other !== router) router.links.dial(other.address);
    }
    rig.time.advance(3_000);
    expect(linkCounts(routers)).toEqual([3, 3, 3, 3]);
    let least = 3;
    for (const secrets of steps)
      for (const router of routers) {
        router.links.setSecrets(secrets);
        least = Math.min(least, fewest(rig, routers, 5_000));
        expect(linkCounts(routers)).toEqual([3, 3, 3, 3]);
      }
    expect(least).toBe(2);
    const replaced = routers.flatMap(({ events }) => events.filter((event) => event.startsWith("down")));
    // Each link was made anew once, at both ends.
    expect(replaced).toHaveLength(12);
    expect(routers.flatMap(({ warnings }) => warnings())).toEqual([]);

    const late = await rig.start("late", knowing("old"));
    for (const router of routers) late.links.dial(router.address);
    rig.time.advance(2_000);
    expect(late.links.links()).toEqual([]);
    expect(new Set(late.events)).toEqual(new Set(routers.map(({ address }) => `failed ${address} secret`)));
  });

  test("ends the links of those who do not know it, one a second, for good", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a", knowing("old"));
    const others = [await rig.start("b", knowing("old")), await rig.start("c", knowing("old"))];
    for (const { address } of others) a.links.dial(address);
    rig.time.advance(20);
    a.links.setSecrets(["new"]);
    a.links.setSecrets(["new"]);
    expect(linkCounts([a])).toEqual([1]);
    rig.time.advance(990);
    expect(linkCounts([a])).toEqual([1]);
    rig.time.advance(20);
    expect(linkCounts([a])).toEqual([0]);
    rig.time.advance(10_000);
    expect(linkCounts([a, ...others])).toEqual([0, 0, 0]);
  });

  test("keeps the links of a secret that still counts", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair(knowing("old"), knowing("old"));
    a.links.setSecrets(["new", "old"]);
    rig.time.advance(5_000);
    expect([a.events, b.events]).toEqual([["up b@1"], ["up a@1"]]);
  });

  test("counts for a handshake that had begun before it", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b", knowing("old"));
    const peer = await dialRaw(rig, "b:1");
    peer.send(peer.hello());
    b.links.setSecrets(["new"]);
    peer.send(peer.proof("dialer", "old"), acceptFrame);
    expect(b.events).toEqual([]);
    expect(peer.heard.ends).toHaveLength(1);
  });

  test("goes on no more once the links are stopped", async () => {
    const rig = new LinksRig();
    const [a] = await rig.pair(knowing("old"), knowing("old"));
    a.links.setSecrets(["new"]);
    await a.links.stop();
    rig.time.advance(5_000);
    expect(a.events).toEqual(["up b@1", "down b@1 replaced"]);
  });
});
