import { describe, expect, test } from "vitest";
import type { LinkEnd } from "../../src/wire/link-frames.ts";
import {
  encodeCredit,
  encodeData,
  encodeGoodbye,
  encodeReject,
  frameTypes,
  linkEnds,
  rejectReasons,
} from "../../src/wire/link-frames.ts";
import { LinksRig } from "./links-rig.ts";
import { acceptFrame, dialRaw, listenRaw, type RawPeer, rawHello } from "./raw-peer.ts";

const stages = ["hello", "proof", "accept", "link"] as const;
type Stage = (typeof stages)[number];

/** A peer that has come so far with a router that waits for the next frame of the named stage. */
async function peerAt(stage: Stage) {
  const rig = new LinksRig();
  const router = await rig.start("a");
  const peer = await dialRaw(rig, "a:1");
  const steps: (() => Uint8Array)[] = [() => peer.hello(), () => peer.proof(), () => acceptFrame];
  for (const step of steps.slice(0, stages.indexOf(stage))) peer.send(step());
  return { rig, router, peer };
}

const rejectIn = ({ heard }: RawPeer) => heard.frames.find(([type]) => type === frameTypes.reject);

describe("a frame out of its turn", () => {
  const frames: Readonly<Record<string, (peer: RawPeer) => Uint8Array>> = {
    "a hello": () => rawHello(),
    "a proof": () => Uint8Array.of(frameTypes.proof, ...new Uint8Array(32)),
    "an acceptance": () => acceptFrame,
    "a data frame": () => encodeData("load", Uint8Array.of(1)),
    "a credit": () => encodeCredit({ channel: "bulk", bytes: 1 }),
    "a goodbye": () => encodeGoodbye("goodbye"),
    "nothing at all": () => new Uint8Array(0),
    "an unknown type": () => Uint8Array.of(99),
  };
  const rows: [Stage, string][] = [];
  for (const stage of stages.slice(0, 3)) {
    for (const name of Object.keys(frames)) {
      const isItsTurn =
        (stage === "hello" && name === "a hello") ||
        (stage === "proof" && name === "a proof") ||
        (stage === "accept" && (name === "an acceptance" || name === "a goodbye"));
      if (!isItsTurn) rows.push([stage, name]);
    }
  }

  test.each(rows)("at %s is refused once, and what follows is not read: %s", async (stage, name) => {
    const { router, peer } = await peerAt(stage);
    peer.send(frames[name]!(peer), rawHello(), acceptFrame);
    expect(peer.heard.ends).toHaveLength(1);
    expect(peer.heard.frames.filter(([type]) => type === frameTypes.reject)).toHaveLength(1);
    expect(rejectIn(peer)![1]).toBe(rejectReasons.indexOf("handshake-invalid"));
    expect(router.events).toEqual([]);
    expect(router.meter.value("espalier_mesh_rejects_total", "handshake-invalid")).toBe(1);
  });

  test.each(["a hello", "a proof", "an acceptance", "nothing at all", "an unknown type"])(
    "on a link ends it as unreadable: %s",
    async (name) => {
      const { router, peer } = await peerAt("link");
      peer.send(frames[name]!(peer), encodeData("load", Uint8Array.of(1)));
      expect(router.events).toEqual(["up raw@1", "down raw@1 frame-invalid"]);
      expect(router.frames).toEqual([]);
      expect(peer.heard.frames.at(-1)).toEqual(encodeGoodbye("frame-invalid"));
    },
  );

  // It was taken for a frame that cannot be read, and logged as a warning with a stack.
  test("that rejects ends the link, and is nothing to warn of", async () => {
    const { router, peer } = await peerAt("link");
    peer.send(encodeReject({ reason: "secret", detail: "late", knownEpoch: 0 }));
    expect(router.events).toEqual(["up raw@1", "down raw@1 reset"]);
    expect(router.warnings()).toEqual([]);
  });
});

describe("a rejection by the other end", () => {
  test.each(rejectReasons)("in place of a hello is told and counted: %s", async (reason) => {
    const rig = new LinksRig();
    const router = await rig.start("a");
    const listener = await listenRaw(rig, "b:1");
    router.links.dial("b:1");
    rig.time.advance(3);
    listener.peers[0]!.send(encodeReject({ reason, detail: "because", knownEpoch: 7 }), rawHello());
    expect(router.events).toEqual([`failed b:1 ${reason}`]);
    expect(router.meter.value("espalier_mesh_rejects_total", reason)).toBe(1);
    // Nothing was proved: nobody may make a router begin another epoch so.
    expect(router.epoch).toBe(1);
  });

  test("ends the handshake at any stage, without an answer", async () => {
    for (const stage of stages.slice(0, 3)) {
      const { router, peer } = await peerAt(stage);
      const before = peer.heard.frames.length;
      peer.send(encodeReject({ reason: "secret", detail: "", knownEpoch: 0 }));
      expect(peer.heard.frames).toHaveLength(before);
      expect(peer.heard.ends).toHaveLength(1);
      expect(router.events).toEqual([]);
    }
  });
});

describe("a goodbye on a link", () => {
  test.each(linkEnds)("ends it as it says, or as gone in good order: %s", async (why: LinkEnd) => {
    const { router, peer } = await peerAt("link");
    peer.send(encodeGoodbye(why), encodeData("load", Uint8Array.of(1)));
    expect(router.events).toEqual(["up raw@1", `down raw@1 ${why === "stopped" ? "goodbye" : why}`]);
    expect(router.frames).toEqual([]);
    expect(router.links.links()).toEqual([]);
  });

  test.each([[[]], [[0, 0]], [[linkEnds.length]], [[255]]])("of no known reason is no goodbye: %j", async (rest) => {
    const { router, peer } = await peerAt("link");
    peer.send(Uint8Array.of(frameTypes.goodbye, ...rest));
    expect(router.events.at(-1)).toBe("down raw@1 frame-invalid");
  });
});

describe("credit", () => {
  test.each([
    ["for what was never sent", [{ channel: "documents", bytes: 1 }]],
    ["for a channel that needs none", [{ channel: "load", bytes: 1 }]],
    [
      "for more than was sent, in two parts",
      [
        { channel: "documents", bytes: 102 },
        { channel: "documents", bytes: 1 },
      ],
    ],
    ["for another channel's bytes", [{ channel: "bulk", bytes: 102 }]],
  ] as const)("ends the link: %s", async (_, credits) => {
    const { router, peer } = await peerAt("link");
    if (credits[0].bytes > 1) router.to("raw").send("documents", new Uint8Array(100));
    peer.send(...credits.map((credit) => encodeCredit(credit)));
    expect(router.events.at(-1)).toBe("down raw@1 frame-invalid");
  });

  test("of nothing, and for all that was sent, is taken", async () => {
    const { router, peer } = await peerAt("link");
    router.to("raw").send("documents", new Uint8Array(100));
    peer.send(encodeCredit({ channel: "documents", bytes: 0 }), encodeCredit({ channel: "documents", bytes: 102 }));
    expect(router.events).toEqual(["up raw@1"]);
  });
});

test("frames that come in one go with the last of the handshake are read", async () => {
  const { router, peer } = await peerAt("accept");
  peer.send(acceptFrame, encodeData("membership", Uint8Array.of(1)), encodeData("load", Uint8Array.of(2)));
  expect(router.events).toEqual(["up raw@1"]);
  expect(router.frames).toEqual(["membership 1", "load 2"]);
});

test("an empty frame of every channel comes as one", async () => {
  const { router, peer } = await peerAt("link");
  const channels = ["load", "membership", "documents", "bulk", "notes"] as const;
  peer.send(...channels.map((channel) => encodeData(channel, new Uint8Array(0))));
  expect(router.frames).toEqual(channels.map((channel) => `${channel} `));
  expect(router.to("raw").stats.receivedBytes).toBe(10);
});
