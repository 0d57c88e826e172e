import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import type { Link } from "../../src/link/link.ts";
import { LinksRig, type TestRouter } from "./links-rig.ts";

const names = ["a", "b", "c", "d", "e"];

interface Stream {
  readonly router: TestRouter;
  next: number;
}

/**
 * Every router sends numbered frames on all its links while the network misbehaves. Within one link, as its receiver
 * sees it, numbers only rise by one; links come and go as the faults will have it.
 */
class Storm {
  readonly rig: LinksRig;
  readonly routers: TestRouter[] = [];
  readonly broken: string[] = [];
  readonly #random;
  readonly #sent = new WeakMap<Link, Stream>();
  readonly #heard = new WeakMap<Link, number>();

  constructor(seed: number) {
    this.rig = new LinksRig(seed);
    this.#random = createSeededRandom(seed);
  }

  async begin(): Promise<void> {
    const { rig } = this;
    rig.network.setSpeed({ delayMs: this.#random.integer(10), jitterMs: this.#random.integer(30) });
    for (const name of names) {
      const router = await rig.start(name);
      router.onFrame = (link, _, frame) => {
        const number = new DataView(frame.buffer, frame.byteOffset).getUint32(0);
        const expected = this.#heard.get(link) ?? 0;
        if (number !== expected)
          this.broken.push(`${name} heard ${number} of ${link.peer.origin.router}, not ${expected}`);
        this.#heard.set(link, expected + 1);
      };
      this.routers.push(router);
    }
    for (const router of this.routers) {
      for (const other of names) if (other !== router.name) router.links.dial(`${other}:1`);
    }
  }

  /** Sends on all links, lets time pass, and perhaps orders a fault. */
  step(): void {
    for (const router of this.routers) {
      for (const link of router.links.links()) {
        const stream = this.#sent.get(link) ?? { router, next: 0 };
        this.#sent.set(link, stream);
        const frame = new Uint8Array(4 + this.#random.integer(50));
        new DataView(frame.buffer).setUint32(0, stream.next);
        if (link.send("documents", frame)) stream.next += 1;
      }
    }
    this.rig.time.advance(this.#random.integer(200));
    this.#fault();
  }

  #fault(): void {
    const { network } = this.rig;
    const [from, to] = [this.#address(), this.#address()];
    switch (this.#random.integer(10)) {
      case 0:
        network.cut({ from, to });
        break;
      case 1:
        network.reset(from, to);
        break;
      case 2:
        network.freeze(from);
        break;
      case 3:
        network.thaw(from);
        break;
      case 4:
        network.partition([names.slice(0, 2), names.slice(2)].map((group) => group.map((name) => `${name}:1`)));
        break;
      case 5:
        network.refuse(from);
        break;
      case 6:
        network.heal();
        break;
      case 7:
        this.routers[this.#random.integer(names.length)]!.links.links()[0]?.close("silent");
        break;
    }
  }

  #address(): string {
    return `${names[this.#random.integer(names.length)]}:1`;
  }
}

describe("links in a storm of faults", () => {
  test.each(fixedSeeds(40))("lose and mix up nothing, and all are there after it: seed %d", async (seed) => {
    const storm = new Storm(seed);
    await storm.begin();
    for (let step = 0; step < 150; step++) storm.step();
    storm.rig.network.heal();
    storm.rig.time.advance(6_000);
    expect(storm.broken).toEqual([]);
    for (const router of storm.routers) {
      const peers = router.links.links().map(({ peer }) => peer.origin.router);
      expect(peers.sort()).toEqual(names.filter((name) => name !== router.name));
      expect(router.meter.value("espalier_mesh_links")).toBe(names.length - 1);
      expect(router.events.some((event) => /frame-invalid|update-refused|buffer-full/.test(event))).toBe(false);
      expect(linkBalance(router)).toEqual(new Map(peers.map((peer) => [peer, 1])));
    }
  });
});

/** How often each peer came up more than it went down. */
function linkBalance({ events }: TestRouter): Map<string, number> {
  const balance = new Map<string, number>();
  for (const event of events) {
    const [what, who = ""] = event.split(" ");
    const peer = who.split("@")[0]!;
    if (what === "up") balance.set(peer, (balance.get(peer) ?? 0) + 1);
    if (what === "down") balance.set(peer, (balance.get(peer) ?? 0) - 1);
  }
  return balance;
}
