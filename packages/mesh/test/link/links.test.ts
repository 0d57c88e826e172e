import { asRouterId, EspalierError } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { selfRedialMs } from "../../src/link/dialer.ts";
import { LinksRig, secret, type TestRouter } from "./links-rig.ts";

const peersOf = ({ links }: TestRouter): string[] =>
  links
    .links()
    .map(({ peer }) => peer.origin.router)
    .sort();

describe("a link", () => {
  test("comes up at both ends, with what each has said of itself, and carries frames both ways", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair({ identity: { capabilities: ["x", "y"] } });
    expect([a.events, b.events]).toEqual([["up b@1"], ["up a@1"]]);
    expect(b.to("a").peer).toEqual({
      origin: { router: "a", epoch: 1 },
      address: "a:1",
      version: 1,
      capabilities: ["x", "y", "secrets"],
    });
    expect(a.to("b").send("load", Uint8Array.of(1, 2))).toBe(true);
    expect(b.to("a").send("bulk", Uint8Array.of())).toBe(true);
    rig.time.advance(1);
    expect([a.frames, b.frames]).toEqual([["bulk "], ["load 1,2"]]);
    expect(b.to("a").stats).toMatchObject({ receivedFrames: 1, receivedBytes: 4, sentFrames: 1, sentBytes: 2 });
    expect(a.meter.value("espalier_mesh_sent_bytes_total", "load")).toBe(4);
    expect(b.meter.value("espalier_mesh_received_bytes_total", "load")).toBe(4);
    expect(b.meter.value("espalier_mesh_links")).toBe(1);
    expect(a.to("b").roundTripMs).toBeNaN();
  });

  test("knows when the other end was heard last", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    rig.time.advance(300);
    a.to("b").send("membership", Uint8Array.of(1));
    rig.time.advance(100);
    expect(rig.time.clock.nowMs() - b.to("a").stats.lastHeardMs).toBe(99);
  });

  test("that is closed ends at both ends, after what waited", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    rig.network.setSpeed({ bytesPerMs: 1_000 });
    for (let index = 0; index < 10; index++) a.to("b").send("documents", new Uint8Array(20_000));
    const link = a.to("b");
    link.close("goodbye");
    link.close("reset");
    expect(a.events).toEqual(["up b@1", "down b@1 goodbye"]);
    expect(link.send("load", Uint8Array.of(1))).toBe(false);
    rig.time.advance(210);
    expect(b.frames).toHaveLength(10);
    expect(b.events).toEqual(["up a@1", "down a@1 goodbye"]);
    expect([a.meter.value("espalier_mesh_links"), b.meter.value("espalier_mesh_links")]).toEqual([0, 0]);
  });

  test.each([
    ["update-refused", "update-refused"],
    ["buffer-full", "buffer-full"],
    ["stopped", "goodbye"],
    ["silent", "reset"],
  ] as const)("that ends as %s is heard of as %s", async (why, heard) => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    a.to("b").close(why);
    rig.time.advance(5);
    expect(b.events).toEqual(["up a@1", `down a@1 ${heard}`]);
  });

  test("ends as reset when the other process is gone, and its address is dialed at once, by both", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    b.links.dial("a:1");
    rig.time.advance(5_000);
    rig.network.kill("a:1");
    rig.time.advance(4);
    expect(b.events).toEqual(["up a@1", "down a@1 reset", "failed a:1 refused"]);
    expect(a.events).toEqual(["up b@1"]);
  });

  test("stops in good order, with nothing left to run", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    b.links.dial("nobody:1");
    rig.time.advance(100);
    await a.links.stop();
    await b.links.stop();
    expect(a.events.at(-1)).toBe("down b@1 stopped");
    expect(b.events.at(-1)).toMatch(/^down a@1/);
    rig.time.advance(3_000);
    expect(rig.time.pendingCount).toBe(0);
    expect(a.links.dial("b:1")).toBe(true);
    rig.time.advance(3_000);
    expect(a.links.links()).toEqual([]);
  });
});

describe("dialing", () => {
  test("goes on for ever, at most once a second", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a");
    a.links.dial("b:1");
    a.links.dial("b:1");
    rig.time.advance(100_000);
    const failures = a.events.length;
    expect(a.events).toEqual(Array.from({ length: failures }, () => "failed b:1 refused"));
    expect(failures).toBeGreaterThan(80);
    expect(failures).toBeLessThanOrEqual(100);
    expect(a.meter.value("espalier_mesh_dial_failures_total", "refused")).toBe(failures);
    const b = await rig.start("b");
    rig.time.advance(1_300);
    expect([peersOf(a), peersOf(b)]).toEqual([["b"], ["a"]]);
    const linked = a.events.length;
    rig.time.advance(60_000);
    expect(a.events).toHaveLength(linked);
  });

  test("before the start waits for it; what is forgotten is dialed no more, also half-way", async () => {
    const rig = new LinksRig();
    await rig.start("b");
    rig.network.freeze("b:1");
    const a = await rig.start("a");
    a.links.dial("b:1");
    rig.time.advance(1_500);
    expect(a.events).toEqual(["failed b:1 timeout"]);
    a.links.forget("b:1");
    a.links.forget("unknown:1");
    rig.network.thaw("b:1");
    rig.time.advance(10_000);
    expect(a.events).toEqual(["failed b:1 timeout"]);
    a.links.dial("b:1");
    rig.time.advance(2);
    a.links.forget("b:1");
    rig.time.advance(10_000);
    expect(peersOf(a)).toEqual([]);
  });

  test("takes as many addresses as its limit says, and not one more", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a", { limits: { maxAddresses: 3 } });
    expect(["b:1", "c:1", "d:1", "e:1", "d:1"].map((address) => a.links.dial(address))).toEqual([
      true,
      true,
      true,
      false,
      true,
    ]);
    a.links.forget("b:1");
    expect(a.links.dial("e:1")).toBe(true);
  });

  test("a router that is linked already leads to nothing, until the link is gone", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    b.links.dial("a:1");
    rig.time.advance(30_000);
    expect([a.events, b.events]).toEqual([["up b@1"], ["up a@1"]]);
  });

  test("another address of a linked router leads to nothing, until the link is gone", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b", { identity: { address: "elsewhere:9" } });
    const a = await rig.start("a");
    a.links.dial("b:1");
    b.links.dial("a:1");
    rig.time.advance(30_000);
    expect(a.events.filter((event) => event.startsWith("up")).length).toBeLessThanOrEqual(2);
    expect([peersOf(a), peersOf(b)]).toEqual([["b"], ["a"]]);
    const before = a.events.length;
    rig.time.advance(30_000);
    expect(a.events).toHaveLength(before);
  });

  test("itself is noticed, counted once at each end, and tried rarely", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a");
    a.links.dial("a:1");
    rig.time.advance(selfRedialMs - 1);
    expect(a.events).toEqual(["failed a:1 self"]);
    expect(a.meter.value("espalier_mesh_rejects_total", "self")).toBe(2);
    expect(peersOf(a)).toEqual([]);
  });
});

describe("one link for each pair", () => {
  test.each(fixedSeeds(40))("whoever dials whom, and when: seed %d", async (seed) => {
    const rig = new LinksRig(seed);
    rig.network.setSpeed({ delayMs: seed % 5, jitterMs: seed % 7 });
    const routers = await Promise.all(["a", "b", "c", "d"].map((name) => rig.start(name)));
    for (const [index, router] of routers.entries()) {
      for (const other of routers) router.links.dial(other.address);
      rig.time.advance((seed * 13 + index) % 11);
    }
    rig.time.advance(3_000);
    for (const router of routers) {
      expect(peersOf(router)).toEqual(["a", "b", "c", "d"].filter((name) => name !== router.name));
      for (const other of routers) {
        if (other === router) continue;
        const before = other.frames.length;
        router.to(other.name).send("load", Uint8Array.of(seed));
        rig.time.advance(20);
        expect(other.frames).toHaveLength(before + 1);
      }
    }
    const downs = routers.flatMap(({ events }) => events.filter((event) => event.startsWith("down")));
    expect(downs.filter((event) => !event.endsWith("replaced"))).toEqual([]);
    const settled = routers.map(({ events }) => events.length);
    rig.time.advance(20_000);
    expect(routers.map(({ events }) => events.length)).toEqual(settled);
  });

  test("of two that dial at the same time, the connection of the lower id is kept", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a");
    const b = await rig.start("b");
    a.links.dial("b:1");
    b.links.dial("a:1");
    rig.time.advance(500);
    expect([a.events, b.events]).toEqual([["up b@1"], ["up a@1"]]);
    rig.network.reset("a:1", "b:1");
    rig.time.advance(3_000);
    expect([a.events, b.events]).toEqual([
      ["up b@1", "down b@1 reset", "up b@1"],
      ["up a@1", "down a@1 reset", "up a@1"],
    ]);
  });

  test("a router that lost its end may come again: the end that is left gives way", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    rig.network.cut({ from: "a:1", to: "b:1" });
    a.to("b").close("silent");
    rig.time.advance(10);
    expect(b.events).toEqual(["up a@1"]);
    rig.network.mend({ from: "a:1", to: "b:1" });
    rig.time.advance(2_000);
    expect(peersOf(b)).toEqual(["a"]);
    expect(a.events.slice(0, 3)).toEqual(["up b@1", "down b@1 silent", "up b@1"]);
  });

  test("another epoch of a router is refused while the first one is heard, and takes its place once it is silent", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    const twin = await rig.start("a", { identity: { origin: { router: asRouterId("a"), epoch: 2 } } }, "twin:1");
    twin.links.dial("b:1");
    for (let index = 0; index < 6; index++) {
      a.to("b").send("membership", Uint8Array.of(1));
      rig.time.advance(500);
    }
    expect(new Set(twin.events)).toEqual(new Set(["failed b:1 router-id-taken"]));
    expect(b.events).toEqual(["up a@1"]);
    rig.network.freeze("a:1");
    rig.time.advance(3_000);
    expect(b.events).toEqual(["up a@1", "down a@1 replaced", "up a@2"]);
    expect(b.meter.value("espalier_mesh_links_closed_total", "replaced")).toBe(1);
  });

  test("two routers of one id refuse each other", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a");
    const twin = await rig.start("a", {}, "twin:1");
    twin.links.dial("a:1");
    rig.time.advance(100);
    expect(twin.events).toEqual(["failed a:1 router-id-taken"]);
    expect(a.meter.value("espalier_mesh_rejects_total", "router-id-taken")).toBe(1);
    expect(twin.meter.value("espalier_mesh_rejects_total", "router-id-taken")).toBe(1);
  });
});

describe("epochs", () => {
  test.each(["dialer", "acceptor"])(
    "a %s that is behind what the other knows renews its epoch and comes again",
    async (role) => {
      const rig = new LinksRig();
      const c = await rig.start("c");
      const a = await rig.start("a");
      a.links.dial("c:1");
      rig.time.advance(20);
      const b = await rig.start("b", { highestEpoch: (router) => (router === "a" ? 7 : 0) });
      if (role === "dialer") a.links.dial("b:1");
      else b.links.dial("a:1");
      rig.time.advance(3_000);
      expect(a.epoch).toBe(8);
      expect(b.events.filter((event) => event.startsWith("up"))).toEqual(["up a@8"]);
      // Who knew the old epoch is told the new one.
      expect(c.events).toEqual(["up a@1", "down a@1 replaced", "up a@8"]);
      expect(a.meter.value("espalier_mesh_rejects_total", "epoch-behind")).toBe(1);
      expect(b.meter.value("espalier_mesh_rejects_total", "epoch-behind")).toBe(1);
    },
  );
});

describe("what cannot work is refused", () => {
  const options = (rig: LinksRig, address: string) => ({
    transport: rig.network.transport(address),
    clock: rig.time.clock,
    scheduler: rig.time.scheduler,
  });

  test("a mesh without a secret beyond this machine", async () => {
    const rig = new LinksRig();
    const error = await rig
      .start("a", { ...options(rig, "10.0.0.1:1"), security: { kind: "insecure" } })
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(EspalierError);
    expect(error).toMatchObject({ code: "mesh_insecure" });
  });

  test.each([
    ["127.0.0.1:1", { kind: "insecure" } as const],
    ["[::1]:1", { kind: "insecure" } as const],
    ["10.0.0.1:1", { kind: "mutual-tls" } as const],
    ["10.0.0.1:1", { kind: "secret", secrets: [secret] } as const],
  ])("but not one on %s with %j", async (address, security) => {
    const rig = new LinksRig();
    const a = await rig.start("a", { ...options(rig, address), security });
    expect(a.links.address).toBe(address);
    const b = await rig.start("b", { ...options(rig, "127.0.0.1:2"), security });
    b.links.dial(address);
    rig.time.advance(10);
    expect(peersOf(a)).toEqual(["b"]);
  });

  test("an empty secret", async () => {
    await expect(new LinksRig().start("a", { security: { kind: "secret", secrets: [""] } })).rejects.toThrow(
      RangeError,
    );
  });

  test("a window smaller than what is credited at once", async () => {
    const rig = new LinksRig();
    const small = { windowBytes: { documents: 1_024, bulk: 1_024 * 1_024 } };
    await expect(rig.start("a", { limits: small })).rejects.toThrow(RangeError);
  });
});
