import { asRouterId, createSeededRandom } from "@espalier/core";
import {
  type CountingMeter,
  createCountingMeter,
  createMemoryNetwork,
  createRecordingLogger,
  createVirtualTime,
  type LogLine,
  type MemoryNetwork,
  type VirtualTime,
} from "@espalier/testing";
import type { LocalIdentity } from "../../src/link/handshake.ts";
import type { Link, LinkObserver } from "../../src/link/link.ts";
import type { LinksOptions } from "../../src/link/links.ts";
import { Links } from "../../src/link/links.ts";
import type { Channel } from "../../src/wire/link-frames.ts";

export type Overrides = Partial<Omit<LinksOptions, "identity">> & { readonly identity?: Partial<LocalIdentity> };

export interface TestRouter {
  readonly name: string;
  readonly address: string;
  readonly links: Links;
  /** `up b@1`, `down b@1 reset`, `failed b:1 refused`, `drained b documents`, in order. */
  readonly events: string[];
  /** `load 1,2` for every frame, in order; of long ones the beginning and the length. */
  readonly frames: string[];
  readonly meter: CountingMeter;
  readonly warnings: () => readonly LogLine[];
  epoch: number;
  /** Called after what is recorded. */
  onFrame: (link: Link, channel: Channel, frame: Uint8Array) => void;
  onDrained: (link: Link, channel: Channel) => void;
  /** The link to another router, which must be there. */
  to(name: string): Link;
}

export const secret = "a secret that all routers of the test know";

/** A frame as a text, of a length that is bounded. */
export function frameText(channel: Channel, frame: Uint8Array): string {
  return frame.length <= 16 ? `${channel} ${frame}` : `${channel} ${frame.subarray(0, 4)} of ${frame.length} bytes`;
}

/** Routers over a network in memory, in virtual time. */
export class LinksRig {
  readonly time: VirtualTime = createVirtualTime();
  readonly network: MemoryNetwork;
  readonly #seed: number;

  constructor(seed = 1) {
    this.#seed = seed;
    const { clock, scheduler } = this.time;
    this.network = createMemoryNetwork({ clock, scheduler, random: createSeededRandom(seed) });
    this.network.setSpeed({ delayMs: 1 });
  }

  async start(name: string, overrides: Overrides = {}, address = `${name}:1`): Promise<TestRouter> {
    const events: string[] = [];
    const frames: string[] = [];
    const meter = createCountingMeter();
    const logger = createRecordingLogger();
    const observer: LinkObserver = {
      up: ({ peer }) => events.push(`up ${peer.origin.router}@${peer.origin.epoch}`),
      down: ({ peer }, why) => events.push(`down ${peer.origin.router}@${peer.origin.epoch} ${why}`),
      frame(link, channel, frame) {
        frames.push(frameText(channel, frame));
        router.onFrame(link, channel, frame);
      },
      drained(link, channel) {
        events.push(`drained ${link.peer.origin.router} ${channel}`);
        router.onDrained(link, channel);
      },
      dialFailed: (to, why) => events.push(`failed ${to} ${why.kind === "rejected" ? why.reason : why.kind}`),
    };
    const { identity, ...options } = overrides;
    const { clock, scheduler } = this.time;
    const links = new Links({
      transport: this.network.transport(address),
      identity: () => ({
        origin: { router: asRouterId(name), epoch: router.epoch },
        address,
        cluster: "test",
        fleetSeed: "seed",
        blockSizeTokens: 16,
        capabilities: [],
        ...identity,
      }),
      security: { kind: "secret", secrets: [secret] },
      clock,
      scheduler,
      random: createSeededRandom(this.#seed),
      logger,
      meter,
      observer,
      highestEpoch: () => 0,
      onEpochBehind: (known) => {
        router.epoch = known + 1;
      },
      ...options,
    });
    const router: TestRouter = {
      name,
      address,
      links,
      events,
      frames,
      meter,
      warnings: () => logger.lines.filter(({ level }) => level === "warn"),
      epoch: identity?.origin?.epoch ?? 1,
      onFrame: () => {},
      onDrained: () => {},
      to(other) {
        const found = links.links().find(({ peer }) => peer.origin.router === other);
        if (!found) throw new Error(`${name} has no link to ${other}`);
        return found;
      },
    };
    await links.start();
    return router;
  }

  /** Two routers with a link that the first has dialed. */
  async pair(first: Overrides = {}, second: Overrides = {}): Promise<readonly [TestRouter, TestRouter]> {
    const a = await this.start("a", first);
    const b = await this.start("b", second);
    a.links.dial(b.address);
    this.time.advance(20);
    return [a, b];
  }
}
