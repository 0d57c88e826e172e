import { createSeededRandom, type Meter, silentMeter } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { Exchange } from "../../src/exchange/exchange.ts";
import type { ExchangeLimits } from "../../src/exchange/exchange-parts.ts";
import type { Link } from "../../src/link/link.ts";
import type { Channel, LinkEnd } from "../../src/wire/link-frames.ts";
import { LogReplica } from "../log-replica.ts";

export interface SentFrame {
  readonly from: string;
  readonly to: string;
  readonly channel: Channel;
  readonly bytes: Uint8Array;
}

class Node {
  readonly replica: LogReplica;
  readonly exchange: Exchange;
  readonly links = new Map<string, NetLink>();
  mayComeMore = false;
  /** What it says it can do; an older router can do nothing more. */
  readonly capabilities = ["notes"];

  readonly logger = createRecordingLogger();

  constructor(net: ExchangeNet, router: string, limits: Partial<ExchangeLimits>, meter: Meter) {
    this.replica = new LogReplica(router);
    const { replica } = this;
    this.exchange = new Exchange({
      replica,
      peers: {
        get self() {
          return replica.origin;
        },
        hears: (one, other) => net.nodes.get(one)?.links.has(other) ?? false,
        epochOf: (other) => net.nodes.get(other)?.replica.origin.epoch,
      },
      clock: net.time.clock,
      scheduler: net.time.scheduler,
      random: createSeededRandom(router.charCodeAt(0)),
      logger: this.logger,
      meter,
      limits,
      mayComeMore: () => this.mayComeMore,
    });
  }
}

class NetLink implements Link {
  readonly peer;
  roundTripMs = Number.NaN;
  readonly stats = {
    sentBytes: 0,
    receivedBytes: 0,
    sentFrames: 0,
    receivedFrames: 0,
    droppedFrames: 0,
    lastHeardMs: 0,
  };
  readonly waiting: { readonly channel: Channel; readonly frame: Uint8Array }[] = [];
  readonly #net: ExchangeNet;
  readonly from: string;
  readonly #hasDropped = new Set<Channel>();
  /** Frames that may wait per channel; a clogged link delivers nothing. */
  capacityFrames = Number.POSITIVE_INFINITY;
  isClogged = false;
  /** Frames that are delivered before the link clogs. */
  clogsAfterFrames = Number.POSITIVE_INFINITY;
  /** Channels on which no more may wait. */
  readonly full = new Set<Channel>();
  endedBy: LinkEnd | undefined;

  constructor(net: ExchangeNet, from: string, to: Node) {
    this.#net = net;
    this.from = from;
    this.peer = { origin: to.replica.origin, address: undefined, version: 1, capabilities: to.capabilities };
  }

  get bufferedBytes(): number {
    return this.waiting.reduce((sum, { frame }) => sum + frame.length, 0);
  }

  waitingBytes(channel: Channel): number {
    return this.waiting.reduce((sum, entry) => sum + (entry.channel === channel ? entry.frame.length : 0), 0);
  }

  send(channel: Channel, frame: Uint8Array): boolean {
    if (this.endedBy !== undefined) return false;
    const waiting = this.waiting.filter((entry) => entry.channel === channel).length;
    if (this.full.has(channel) || waiting >= this.capacityFrames) {
      this.stats.droppedFrames += 1;
      this.#hasDropped.add(channel);
      return false;
    }
    this.waiting.push({ channel, frame: frame.slice() });
    this.#net.sent.push({ from: this.from, to: this.peer.origin.router, channel, bytes: frame.slice() });
    this.stats.sentBytes += frame.length;
    if (!this.isClogged) this.#net.time.scheduler.after(this.#net.delayMs, () => this.#deliver());
    return true;
  }

  unclog(): void {
    this.isClogged = false;
    this.clogsAfterFrames = Number.POSITIVE_INFINITY;
    for (const _ of this.waiting) this.#net.time.scheduler.after(this.#net.delayMs, () => this.#deliver());
  }

  close(why: LinkEnd): void {
    this.#net.disconnect(this.from, this.peer.origin.router, why);
  }

  #deliver(): void {
    if (this.endedBy !== undefined || this.isClogged) return;
    if (this.clogsAfterFrames-- <= 0) {
      this.isClogged = true;
      return;
    }
    const entry = this.waiting.shift();
    if (entry === undefined) return;
    this.#net.deliver(this.peer.origin.router, this.from, entry.channel, entry.frame);
    if (this.waiting.length > 0 || this.endedBy !== undefined) return;
    const node = this.#net.node(this.from);
    for (const channel of [...this.#hasDropped].filter((dropped) => !this.full.has(dropped))) {
      this.#hasDropped.delete(channel);
      node.exchange.drained(this, channel);
    }
  }
}

/** Exchanges over links in memory, without handshakes and membership: who is linked is told by the test. */
export class ExchangeNet {
  readonly time: VirtualTime = createVirtualTime();
  readonly nodes = new Map<string, Node>();
  readonly sent: SentFrame[] = [];
  /** Whether frames that cannot be read end the test. */
  readonly invalid: string[] = [];
  readonly ends: LinkEnd[] = [];
  delayMs = 1;
  readonly #limits: Partial<ExchangeLimits>;

  readonly #meter: Meter;

  constructor(limits: Partial<ExchangeLimits> = {}, meter: Meter = silentMeter) {
    this.#limits = limits;
    this.#meter = meter;
  }

  add(router: string, prepare: (replica: LogReplica) => void = () => {}): Node {
    const node = new Node(this, router, this.#limits, this.#meter);
    prepare(node.replica);
    this.nodes.set(router, node);
    node.exchange.start();
    return node;
  }

  node(router: string): Node {
    const node = this.nodes.get(router);
    if (node === undefined) throw new RangeError(`no node ${router}`);
    return node;
  }

  link(from: string, to: string): NetLink {
    const link = this.node(from).links.get(to);
    if (link === undefined) throw new RangeError(`no link from ${from} to ${to}`);
    return link;
  }

  /** @param prepare what the links are like before anything is sent */
  connect(one: string, other: string, prepare: (link: NetLink) => void = () => {}): void {
    if (this.node(one).links.has(other)) return;
    const pairs = [
      [one, other],
      [other, one],
    ] as const;
    for (const [from, to] of pairs) {
      const link = new NetLink(this, from, this.node(to));
      prepare(link);
      this.node(from).links.set(to, link);
    }
    for (const [from, to] of pairs) this.node(from).exchange.linkUp(this.link(from, to));
  }

  connectAll(): void {
    const routers = [...this.nodes.keys()];
    for (const one of routers) for (const other of routers) if (one < other) this.connect(one, other);
  }

  disconnect(one: string, other: string, why: LinkEnd = "reset"): void {
    this.ends.push(why);
    for (const [from, to] of [
      [one, other],
      [other, one],
    ] as const) {
      const link = this.node(from).links.get(to);
      if (link === undefined) continue;
      link.endedBy = why;
      this.node(from).links.delete(to);
      this.node(from).exchange.linkDown(link);
    }
  }

  deliver(to: string, from: string, channel: Channel, frame: Uint8Array): void {
    const link = this.link(to, from);
    try {
      if (channel !== "membership") this.node(to).exchange.frame(link, channel, frame);
    } catch (error) {
      this.invalid.push(String(error));
      this.disconnect(to, from, "frame-invalid");
    }
  }

  /** Frames on a channel that have gone from one router to another. */
  frames(from: string, to: string, channel: Channel): SentFrame[] {
    return this.sent.filter((frame) => frame.from === from && frame.to === to && frame.channel === channel);
  }

  digests(): Set<string> {
    return new Set([...this.nodes.values()].map(({ replica }) => replica.digest()));
  }
}

export const text = (value: string): Uint8Array => new TextEncoder().encode(value);
