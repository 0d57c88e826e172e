import { asRouterId, createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { maxHandshakeFrameBytes } from "../../src/link/link.ts";
import { decodeReject, encodeReject, type RejectReason, rejectReasons } from "../../src/wire/link-frames.ts";
import { LinksRig, type Overrides, type TestRouter } from "./links-rig.ts";
import { acceptFrame, dialedByRouter, dialRaw, listenRaw, type RawPeer } from "./raw-peer.ts";

const rejects = ({ meter }: TestRouter): string[] =>
  rejectReasons.filter((reason) => meter.value("espalier_mesh_rejects_total", reason) > 0);

/** What a raw peer was refused for, as the last frame that it got says. */
const refusalOf = ({ heard }: RawPeer): RejectReason | undefined => {
  const last = heard.frames.at(-1);
  return last?.[0] === 4 ? decodeReject(last).reason : undefined;
};

describe("two routers that do not fit refuse each other, which both count and log once", () => {
  const cases: readonly (readonly [RejectReason, Overrides])[] = [
    ["cluster-name", { identity: { cluster: "another" } }],
    ["fleet-seed", { identity: { fleetSeed: "another" } }],
    ["block-size", { identity: { blockSizeTokens: 32 } }],
    ["secret", { security: { kind: "secret", secrets: ["another"] } }],
    ["secret", { security: { kind: "mutual-tls" } }],
    ["protocol-version", { versions: { min: 2, max: 3 } }],
  ];
  test.each(cases)("%s", async (reason, overrides) => {
    for (const isOddDialer of [true, false]) {
      const rig = new LinksRig();
      const [a, b] = isOddDialer ? await rig.pair(overrides) : await rig.pair({}, overrides);
      rig.time.advance(20_000);
      expect(new Set(a.events)).toEqual(new Set([`failed b:1 ${reason}`]));
      expect(b.events).toEqual([]);
      for (const router of [a, b]) {
        expect(rejects(router)).toEqual([reason]);
        expect(router.meter.value("espalier_mesh_rejects_total", reason)).toBeGreaterThan(10);
        expect(router.warnings()).toHaveLength(1);
        expect(router.warnings()[0]!.fields).toMatchObject({ reason });
      }
      rig.time.advance(60_000);
      expect(a.warnings()).toHaveLength(2);
    }
  });

  test("another router is not held up by it", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    await dialRaw(rig, "b:1");
    expect([a.links.links().length, b.links.links().length]).toEqual([1, 1]);
  });
});

describe("protocol versions", () => {
  test.each([
    [{ min: 1, max: 2 }, { min: 2, max: 3 }, 2],
    [{ min: 1, max: 1 }, { min: 1, max: 2 }, 1],
    [{ min: 1, max: 5 }, { min: 2, max: 4 }, 4],
  ])("the highest that both speak is chosen: %j and %j", async (first, second, version) => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair({ versions: first }, { versions: second });
    expect([a.to("b").peer.version, b.to("a").peer.version]).toEqual([version, version]);
  });

  test("a later version may add to its hello", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    const longer = Uint8Array.from([...peer.hello({ versions: { min: 1, max: 2 } }), 1, 2, 3]);
    peer.send(longer);
    expect(peer.heard.ends).toEqual([]);
    expect(refusalOf(peer)).toBeUndefined();
    expect(rejects(b)).toEqual([]);
  });

  test("nothing but the versions is read of a hello that shares none", async () => {
    const rig = new LinksRig();
    await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    peer.send(peer.hello({ versions: { min: 2, max: 2 } }).slice(0, 8));
    expect(refusalOf(peer)).toBe("protocol-version");
  });
});

describe("a stranger", () => {
  test("gets no proof before it has proved itself, and no link without one", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    peer.send(peer.hello());
    expect(peer.heard.frames.map(([type]) => type)).toEqual([1]);
    peer.send(acceptFrame);
    expect(refusalOf(peer)).toBe("handshake-invalid");
    expect(peer.heard.ends).toMatchObject([{ kind: "closed", code: 4_000 }]);
    expect(b.events).toEqual([]);
  });

  test("gets nowhere with a proof of another handshake", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const first = await dialRaw(rig, "b:1");
    const hello = first.hello();
    first.send(hello);
    const proof = first.proof();
    first.send(proof, acceptFrame);
    expect(b.events).toEqual(["up raw@1"]);
    const second = await dialRaw(rig, "b:1");
    second.send(hello);
    second.send(proof);
    expect(refusalOf(second)).toBe("secret");
    expect(second.heard.frames.map(([type]) => type)).toEqual([1, 4]);
  });

  test("gets nowhere by sending a router's own proof back", async () => {
    const { a, peers } = await dialedByRouter();
    const peer = peers[0]!;
    peer.send(peer.hello());
    const proof = peer.heard.frames[1]!;
    expect(proof[0]).toBe(2);
    peer.send(proof, acceptFrame);
    expect(a.events).toEqual(["failed b:1 secret"]);
  });

  test("gets nowhere by passing proofs between two routers that it has changed the words of", async () => {
    const rig = new LinksRig();
    await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    peer.send(peer.hello());
    const proof = peer.proof();
    const forged = await dialRaw(rig, "b:1");
    forged.send(forged.hello({ origin: { router: asRouterId("forged"), epoch: 1 } }));
    forged.send(proof);
    expect(refusalOf(forged)).toBe("secret");
  });

  test("cannot make a router renew its epoch", async () => {
    const { a, peers } = await dialedByRouter();
    const rejection = { reason: "epoch-behind", detail: "so they say", knownEpoch: 1e12 } as const;
    peers[0]!.send(peers[0]!.hello(), encodeReject(rejection));
    expect(a.events).toEqual(["failed b:1 epoch-behind"]);
    expect(a.epoch).toBe(1);
  });

  test("who proves itself can", async () => {
    const { a, peers } = await dialedByRouter();
    peers[0]!.send(peers[0]!.hello());
    const rejection = { reason: "epoch-behind", detail: "so we say", knownEpoch: 41 } as const;
    peers[0]!.send(peers[0]!.proof("acceptor"), encodeReject(rejection));
    expect(a.epoch).toBe(42);
  });

  test("that says nothing is left alone for two seconds, and then not any more", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    rig.time.advance(1_990);
    expect(peer.heard.ends).toEqual([]);
    rig.time.advance(20);
    expect(refusalOf(peer)).toBe("handshake-timeout");
    expect(peer.heard.ends).toHaveLength(1);
    expect(rejects(b)).toEqual(["handshake-timeout"]);
  });

  test("that is dialed and says nothing is given up in time and dialed again", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a");
    const { peers } = await listenRaw(rig, "b:1");
    a.links.dial("b:1");
    rig.time.advance(6_500);
    expect(a.events.slice(0, 2)).toEqual(["failed b:1 handshake-timeout", "failed b:1 handshake-timeout"]);
    expect(peers.length).toBeGreaterThan(2);
  });

  test("whose words could disturb a terminal is logged without them", async () => {
    const { a, peers } = await dialedByRouter();
    peers[0]!.send(encodeReject({ reason: "secret", detail: "\u001b[31m\nred", knownEpoch: 0 }));
    expect(a.warnings()[0]!.fields).toMatchObject({ detail: "?[31m?red", address: "b:1" });
  });
});

describe("bounds before the handshake is done", () => {
  test("a frame of 4 KiB is read, one byte more is not", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    for (const [extra, reason] of [
      [0, undefined],
      [1, "handshake-invalid"],
    ] as const) {
      const peer = await dialRaw(rig, "b:1");
      const frame = new Uint8Array(maxHandshakeFrameBytes + extra);
      frame.set(peer.hello());
      peer.send(frame);
      expect(refusalOf(peer)).toBe(reason);
    }
    expect(rejects(b)).toEqual(["handshake-invalid"]);
  });

  test("as many handshakes at once as the limit says; with one more the oldest ends", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b", { limits: { maxHandshakes: 3 } });
    const peers = [];
    for (let index = 0; index < 4; index++) peers.push(await dialRaw(rig, "b:1"));
    rig.time.advance(2);
    expect(peers.map(refusalOf)).toEqual(["too-many-peers", undefined, undefined, undefined]);
    expect(rejects(b)).toEqual(["too-many-peers"]);
    peers[1]!.link();
    expect(b.events).toEqual(["up raw@1"]);
    const late = await dialRaw(rig, "b:1");
    late.send(late.hello());
    expect(refusalOf(late)).toBeUndefined();
  });

  test("64 peers, and not one more, until one leaves", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peers: RawPeer[] = [];
    const linkNext = async (): Promise<RawPeer> => {
      const peer = await dialRaw(rig, "b:1");
      peer.link({ origin: { router: asRouterId(`raw-${peers.length}`), epoch: 1 } });
      peers.push(peer);
      return peer;
    };
    while (peers.length < 64) expect(refusalOf(await linkNext())).toBeUndefined();
    expect(b.links.links()).toHaveLength(64);
    expect(refusalOf(await linkNext())).toBe("too-many-peers");
    expect(b.links.links()).toHaveLength(64);
    peers[0]!.connection.terminate();
    rig.time.advance(5);
    expect(refusalOf(await linkNext())).toBeUndefined();
    expect(b.links.links()).toHaveLength(64);
  });

  test("all rejections are counted; those of the 256 addresses seen last are remembered as logged", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const refused = async (host: number, port: number): Promise<void> => {
      const peer = await dialRaw(rig, "b:1", `10.0.0.${host}:${port}`);
      peer.send(Uint8Array.of(9));
    };
    for (let host = 0; host < 256; host++) await refused(host, 1);
    await refused(0, 2);
    expect(b.warnings()).toHaveLength(256);
    await refused(256, 1);
    await refused(255, 2);
    expect(b.warnings()).toHaveLength(257);
    // The one seen longest ago has made way.
    await refused(1, 2);
    expect(b.warnings()).toHaveLength(258);
    expect(b.meter.value("espalier_mesh_rejects_total", "handshake-invalid")).toBe(260);
  });
});

describe("arbitrary bytes", () => {
  const stages = ["hello", "proof", "accept", "link"] as const;
  test.each(stages)(
    "in place of what comes at %s close this connection, with a counted reason, and no other",
    async (stage) => {
      const random = createSeededRandom(5);
      const rig = new LinksRig();
      const [a, b] = await rig.pair();
      for (let round = 0; round < 150; round++) {
        const peer = await dialRaw(rig, "b:1");
        if (stage === "link") peer.link();
        if (stage === "proof" || stage === "accept") peer.send(peer.hello());
        if (stage === "accept") peer.send(peer.proof());
        const isMutated = random.float() < 0.5 && stage === "hello";
        const frame = isMutated
          ? peer.hello().slice()
          : new Uint8Array(random.integer(60)).map(() => random.integer(256));
        for (let flips = isMutated ? 1 + random.integer(3) : 0; flips > 0; flips--) {
          frame[random.integer(20)] = random.integer(256);
        }
        if (stage === "link") frame[0] = [1, 2, 3, 4, 5, 6, 7, 200][random.integer(8)]!;
        if (stage === "link" && frame[0] === 6) frame[1] = 4 + random.integer(200);
        if (stage === "accept" && frame[0] === acceptFrame[0] && frame.length === 1) continue;
        peer.send(frame);
        if (stage === "hello" && refusalOf(peer) === undefined && peer.heard.ends.length === 0) {
          // A hello that is another valid one: it fails at the proof.
          expect(isMutated).toBe(true);
          peer.connection.terminate();
          rig.time.advance(3);
          continue;
        }
        expect(peer.heard.ends).toHaveLength(1);
      }
      expect(a.events).toEqual(["up b@1"]);
      expect(b.events.filter((event) => event.includes(" a@"))).toEqual(["up a@1"]);
      if (stage === "link") {
        const ends = (why: string) => b.meter.value("espalier_mesh_links_closed_total", why);
        expect(ends("frame-invalid")).toBeGreaterThan(100);
        expect(b.links.links()).toHaveLength(1);
      } else {
        expect(rejects(b).length).toBeGreaterThan(0);
      }
      a.to("b").send("load", Uint8Array.of(7));
      rig.time.advance(2);
      expect(b.frames.at(-1)).toBe("load 7");
    },
  );
});
