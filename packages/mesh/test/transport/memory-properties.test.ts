import { type Connection, createSeededRandom, drainMarkBytes, type Random } from "@espalier/core";
import { createMemoryNetwork, createVirtualTime, fixedSeeds, type MemoryNetwork } from "@espalier/testing";
import { describe, expect, test } from "vitest";

interface End {
  readonly address: string;
  readonly connection: Connection;
  readonly sent: number[];
  readonly heard: number[];
  readonly ends: string[];
  drained: number;
}

const addresses = ["a:1", "b:1", "c:1"];
const seeds = fixedSeeds(60);

class Rig {
  readonly time = createVirtualTime();
  readonly random: Random;
  readonly network: MemoryNetwork;
  /** Both ends of each connection, the dialing one first. */
  readonly pairs: (readonly [End, End])[] = [];

  constructor(seed: number) {
    this.random = createSeededRandom(seed);
    const { clock, scheduler } = this.time;
    this.network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(seed + 1_000) });
  }

  async start(): Promise<void> {
    const transports = addresses.map((address) => this.network.transport(address));
    const accepted: End[] = [];
    for (const [at, transport] of transports.entries()) {
      transport.onConnection((connection) => {
        const end = this.#end(addresses[at]!, connection);
        accepted.push(end);
        return observerOf(end);
      });
      await transport.start();
    }
    for (const [at, transport] of transports.entries()) {
      for (const to of addresses.slice(at + 1)) {
        let dialed: End | undefined;
        transport.dial(to, {
          opened: (connection) => {
            dialed = this.#end(addresses[at]!, connection);
          },
          frame: (frame) => dialed && observerOf(dialed).frame(frame),
          closed: (why) => dialed && observerOf(dialed).closed(why),
          drained: () => dialed && observerOf(dialed).drained(),
        });
        this.time.advance(0);
        this.pairs.push([dialed!, accepted.pop()!]);
      }
    }
  }

  pick<T>(list: readonly T[]): T {
    return list[this.random.integer(list.length)]!;
  }

  send(end: End, sizeBytes: number): void {
    const number = end.sent.length;
    const frame = new Uint8Array(Math.max(4, sizeBytes));
    new DataView(frame.buffer).setUint32(0, number);
    end.sent.push(number);
    end.connection.send(frame);
  }

  #end(address: string, connection: Connection): End {
    connection.trust();
    return { address, connection, sent: [], heard: [], ends: [], drained: 0 };
  }
}

function observerOf(end: End) {
  return {
    frame: (frame: Uint8Array) => void end.heard.push(new DataView(frame.buffer, frame.byteOffset).getUint32(0)),
    closed: ({ kind }: { readonly kind: string }) => void end.ends.push(kind),
    drained: () => void end.drained++,
  };
}

/** Any fault but one that ends connections. */
function disturb({ network, random, pick }: Rig): void {
  const [from, to] = [pick.call({ random }, addresses), pick.call({ random }, addresses)] as [string, string];
  const kinds: readonly (() => void)[] = [
    () => network.cut({ from, to }),
    () => network.mend({ from, to }),
    () => network.freeze(from),
    () => network.thaw(from),
    () => network.partition([[from], addresses.filter((address) => address !== from)]),
    () => network.partition([]),
    () => network.heal(),
    () => network.refuse(to),
    () => network.setSpeed({ delayMs: random.integer(20), jitterMs: random.integer(10) }),
    () => network.setSpeed({ bytesPerMs: 1 + random.integer(2_000) }, { from, to }),
  ];
  kinds[random.integer(kinds.length)]!();
}

describe("whatever a network does short of breaking connections", () => {
  test.each(seeds)("every frame arrives once and in order (seed %d)", async (seed) => {
    const rig = new Rig(seed);
    await rig.start();
    for (let step = 0; step < 120; step++) {
      const end = rig.pick(rig.pick(rig.pairs));
      if (rig.random.integer(3) > 0) rig.send(end, rig.random.integer(3_000));
      if (rig.random.integer(4) === 0) disturb(rig);
      rig.time.advance(rig.random.integer(12));
    }
    rig.network.heal();
    rig.time.advance(600_000);
    for (const [one, other] of rig.pairs) {
      expect(other.heard).toEqual(one.sent);
      expect(one.heard).toEqual(other.sent);
      expect([one.ends, other.ends]).toEqual([[], []]);
      expect([one.connection.bufferedBytes, other.connection.bufferedBytes]).toEqual([0, 0]);
    }
    expect(rig.time.pendingCount).toBe(0);
  });
});

describe("when connections are broken at any moment", () => {
  test.each(seeds)(
    "each end hears a beginning of what was sent, then one end, and nothing after it (seed %d)",
    async (seed) => {
      const rig = new Rig(seed);
      await rig.start();
      const heardAtEnd = new Map<End, number>();
      for (let step = 0; step < 150; step++) {
        const [one, other] = rig.pick(rig.pairs);
        const end = rig.pick([one, other]);
        rig.send(end, rig.random.integer(3_000));
        if (rig.random.integer(4) === 0) disturb(rig);
        switch (rig.random.integer(25)) {
          case 0:
            end.connection.close(1000, "done");
            break;
          case 1:
            end.connection.terminate();
            break;
          case 2:
            rig.network.reset(one.address, other.address);
        }
        rig.time.advance(rig.random.integer(12));
        for (const seen of rig.pairs.flat()) {
          if (seen.ends.length > 0 && !heardAtEnd.has(seen)) heardAtEnd.set(seen, seen.heard.length);
        }
      }
      rig.network.heal();
      for (const [one] of rig.pairs) one.connection.close(1000, "the end");
      rig.time.advance(600_000);
      for (const [one, other] of rig.pairs) {
        expect([one.ends.length, other.ends.length]).toEqual([1, 1]);
        expect(one.heard).toEqual(other.sent.slice(0, one.heard.length));
        expect(other.heard).toEqual(one.sent.slice(0, other.heard.length));
      }
      for (const [end, count] of heardAtEnd) expect(end.heard).toHaveLength(count);
      expect(rig.time.pendingCount).toBe(0);
    },
  );
});

describe("what waits with a sender", () => {
  test("goes at the pace of the wire, and the sender is told once when it is below the mark", async () => {
    const rig = new Rig(1);
    await rig.start();
    const [from, to] = rig.pairs[0]!;
    rig.network.setSpeed({ bytesPerMs: 1_000 });
    const frames = Math.ceil((2 * drainMarkBytes) / 1_000);
    for (let at = 0; at < frames; at++) rig.send(from, 1_000);
    expect(from.connection.bufferedBytes).toBe(frames * 1_000);
    rig.time.advance(10);
    expect([to.heard.length, from.drained]).toEqual([10, 0]);
    rig.time.advance(frames);
    expect([to.heard.length, from.drained, from.connection.bufferedBytes]).toEqual([frames, 1, 0]);
  });

  test("waits through a stop of either process, in both directions", async () => {
    const rig = new Rig(2);
    await rig.start();
    const [a, b] = rig.pairs[0]!;
    rig.network.freeze("a:1");
    rig.network.freeze("b:1");
    rig.send(a, 10);
    rig.send(b, 10);
    rig.network.thaw("a:1");
    rig.time.advance(1_000);
    expect([a.heard, b.heard]).toEqual([[], []]);
    rig.network.thaw("b:1");
    rig.time.advance(1);
    expect([a.heard, b.heard]).toEqual([[0], [0]]);
  });

  test("is lost with a connection that is broken off, and not with one that is closed", async () => {
    for (const [end, heard] of [
      ["close", [0, 1, 2]],
      ["terminate", []],
    ] as const) {
      const rig = new Rig(3);
      await rig.start();
      const [a, b] = rig.pairs[0]!;
      rig.network.cut({ from: "a:1", to: "b:1" });
      for (let at = 0; at < 3; at++) rig.send(a, 10);
      if (end === "close") a.connection.close(1000, "");
      else a.connection.terminate();
      rig.time.advance(1_000);
      expect([a.ends.length, b.ends.length]).toEqual([1, 0]);
      rig.network.mend({ from: "a:1", to: "b:1" });
      rig.time.advance(1);
      expect(b.heard).toEqual(heard);
      expect(b.ends).toHaveLength(1);
    }
  });

  test("a speed of one direction leaves the other one as it is", async () => {
    const rig = new Rig(4);
    await rig.start();
    const [a, b] = rig.pairs[0]!;
    rig.network.setSpeed({ bytesPerMs: 10 }, { from: "a:1", to: "b:1" });
    rig.send(a, 100);
    rig.send(b, 100);
    rig.time.advance(0);
    expect([a.heard.length, b.heard.length]).toEqual([1, 0]);
    rig.time.advance(10);
    expect(b.heard).toHaveLength(1);
  });
});
