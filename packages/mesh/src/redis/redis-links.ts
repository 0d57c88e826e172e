import { asRouterId, ByteReader, ByteWriter, type Clock, type Logger } from "@espalier/core";
import { noteCapability } from "../exchange/relay-carrier.ts";
import { isPeersFault } from "../link/guard-observer.ts";
import { type Channel, channels, type Link, type LinkEnd, type LinkObserver, type LinkStats } from "../link/link.ts";
import { checkEpoch, type Origin, originKey } from "../origin.ts";
import type { CountIncident, RedisKeys, RedisLimits } from "./redis-keys.ts";
import type { RedisSession } from "./redis-session.ts";

/**
 * What routers publish. `hello` begins a link, and has the number of the other end's hello that it answers, 0 for none.
 * `ready` says that its sender had the other end's hello, and from which number on frames for all are for this link
 * too. `frame` carries a frame of a link, `shared` one that is the same for all links. `goodbye` says that a router
 * leaves, `look` that its lease has changed.
 */
export type RedisMessage = { readonly from: Origin } & (
  | { readonly kind: "hello"; readonly link: number; readonly answers: number }
  | { readonly kind: "ready"; readonly link: number; readonly nextShared: number }
  | {
      readonly kind: "frame";
      readonly link: number;
      readonly counter: number;
      readonly channel: Channel;
      readonly frame: Uint8Array;
    }
  | { readonly kind: "shared"; readonly counter: number; readonly channel: Channel; readonly frame: Uint8Array }
  | { readonly kind: "goodbye" | "look" }
);

const messageVersion = 1;
const kinds = ["hello", "ready", "frame", "shared", "goodbye", "look"] as const;
const maxRouterBytes = 512;

export function encodeRedisMessage(message: RedisMessage): Uint8Array<ArrayBuffer> {
  const { router, epoch } = message.from;
  const writer = new ByteWriter(router.length + 48 + ("frame" in message ? message.frame.length : 0));
  writer.u8(messageVersion);
  writer.u8(kinds.indexOf(message.kind));
  writer.text(router);
  writer.varint(epoch);
  if ("link" in message) writer.varint(message.link);
  if ("answers" in message) writer.varint(message.answers);
  if ("nextShared" in message) writer.varint(message.nextShared);
  if ("frame" in message) {
    writer.varint(message.counter);
    writer.u8(channels.indexOf(message.channel));
    writer.raw(message.frame);
  }
  return writer.copy();
}

/** @throws RangeError for bytes that are no message of this version, and for more than `maxBytes` */
export function decodeRedisMessage(bytes: Uint8Array, maxBytes: number): RedisMessage {
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes where ${maxBytes} are the most`);
  const reader = new ByteReader(bytes);
  if (reader.u8() !== messageVersion) throw new RangeError("a message of another version");
  const kind = kinds[reader.u8()];
  const from = { router: asRouterId(reader.text(maxRouterBytes)), epoch: checkEpoch(reader.varint()) };
  switch (kind) {
    case "hello": {
      const hello = { kind, from, link: reader.varint(), answers: reader.varint() };
      reader.end();
      return hello;
    }
    case "ready": {
      const ready = { kind, from, link: reader.varint(), nextShared: reader.varint() };
      reader.end();
      return ready;
    }
    case "frame":
      return { kind, from, link: reader.varint(), ...readFrame(reader) };
    case "shared":
      return { kind, from, ...readFrame(reader) };
    case "goodbye":
    case "look":
      reader.end();
      return { kind, from };
    default:
      throw new RangeError("a message of an unknown kind");
  }
}

function readFrame(reader: ByteReader): { counter: number; channel: Channel; frame: Uint8Array } {
  const counter = reader.varint();
  const channel = channels[reader.u8()];
  if (channel === undefined || channel === "membership") throw new RangeError("a frame of an unknown channel");
  return { counter, channel, frame: reader.raw(reader.remaining) };
}

export interface RedisLinksOptions {
  readonly origin: () => Origin;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly count: CountIncident;
  readonly observer: Pick<LinkObserver, "up" | "down" | "frame" | "drained">;
  /** A router is there whose lease may not have been seen yet. */
  readonly onGreeting: (from: Origin) => void;
  readonly onGoodbye: (from: Origin) => void;
  /** A lease has changed. */
  readonly onLook: () => void;
}

/** What this router sends to another one, and what it expects from it. */
interface Endpoint {
  readonly peer: Origin;
  /** Number that this router gives the link; no number occurs twice in one epoch of a router. */
  link: number;
  /** Number of the next frame of this link that is not shared. */
  next: number;
  helloMs: number;
  /** The peer's messages under this number are not waited for any more. */
  given: number;
  heard: { readonly link: number; next: number; nextShared: number | undefined } | undefined;
  up: RedisLink | undefined;
}

interface Outgoing {
  readonly channel: Channel;
  readonly frame: Uint8Array;
  readonly to: Endpoint[];
}

/**
 * Links to other routers through Redis: publish/subscribe, with one channel for each router's own messages and one for
 * messages to all. Messages are numbered. A router that missed one ends the link, and both ends begin it again.
 */
export class RedisLinks {
  readonly #options: RedisLinksOptions;
  readonly #endpoints = new Map<string, Endpoint>();
  readonly #waiting = Object.fromEntries(channels.map((channel) => [channel, 0])) as Record<Channel, number>;
  readonly #full = new Map<Channel, Set<RedisLink>>();
  #session: RedisSession | undefined;
  #outbox: Outgoing[] = [];
  #lastLink = 0;
  #nextShared = 0;

  constructor(options: RedisLinksOptions) {
    this.#options = options;
  }

  attach(session: RedisSession): void {
    this.#session = session;
  }

  /** Ends all links. */
  detach(): void {
    this.#session = undefined;
    this.#outbox = [];
    this.#full.clear();
    for (const channel of channels) this.#waiting[channel] = 0;
    for (const endpoint of [...this.#endpoints.values()]) this.#drop(endpoint, "reset");
  }

  /** Links to these routers and no others. Greets again those that did not answer yet. */
  setPeers(peers: readonly Origin[]): void {
    const { clock, limits } = this.#options;
    const keys = new Set(peers.map(originKey));
    for (const endpoint of [...this.#endpoints.values()]) {
      if (!keys.has(originKey(endpoint.peer))) this.#drop(endpoint, "reset");
    }
    for (const peer of peers) {
      const endpoint = this.#endpoints.get(peer.router);
      if (endpoint === undefined) this.#open(peer);
      else if (!endpoint.up && clock.nowMs() - endpoint.helloMs >= limits.helloAgainMs) this.#restart(endpoint, 0);
    }
  }

  links(): readonly Link[] {
    return [...this.#endpoints.values()].flatMap(({ up }) => up ?? []);
  }

  isLinked(origin: Origin): boolean {
    const endpoint = this.#endpoints.get(origin.router);
    return endpoint?.up !== undefined && endpoint.peer.epoch === origin.epoch;
  }

  get waitingBytes(): number {
    return channels.reduce((sum, channel) => sum + this.#waiting[channel], 0);
  }

  /** Publishes to all routers; settles once Redis has it, or has failed. */
  async tellAll(kind: "goodbye" | "look"): Promise<void> {
    this.#flush();
    await this.#publish(this.#options.keys.all, { kind, from: this.#options.origin() });
  }

  /** Takes a message as it arrived. */
  receive(bytes: Uint8Array): void {
    const { limits, origin, count, onGoodbye } = this.#options;
    let message: RedisMessage;
    try {
      message = decodeRedisMessage(bytes, limits.maxMessageBytes);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      count("message-invalid");
      return;
    }
    if (message.from.router === origin().router) return;
    switch (message.kind) {
      case "hello":
        this.#hello(message);
        return;
      case "ready":
        this.#ready(message);
        return;
      case "frame":
      case "shared":
        this.#frame(message, bytes.length);
        return;
      case "goodbye":
        onGoodbye(message.from);
        return;
      case "look":
        this.#options.onLook();
    }
  }

  /**
   * Answers a hello with a hello, and an answer with nothing. Ignores an answer to anything but the latest hello, which
   * will be answered too.
   */
  #hello({ from, link, answers }: RedisMessage & { kind: "hello" }): void {
    const { limits, onGreeting } = this.#options;
    if (!this.#session) return;
    const known = this.#endpoints.get(from.router);
    if (known && from.epoch < known.peer.epoch) return;
    if (known?.peer.epoch !== from.epoch) {
      if (known) this.#drop(known, "replaced");
      if (this.#endpoints.size >= limits.maxMembers) return;
      onGreeting(from);
    }
    const endpoint = this.#endpoints.get(from.router) ?? this.#open(from);
    if (endpoint.heard?.link === link) return;
    if (answers !== 0 && answers !== endpoint.link) {
      endpoint.given = Math.max(endpoint.given, link);
      return;
    }
    if (endpoint.heard) {
      this.#down(endpoint, "reset");
      this.#number(endpoint);
    }
    endpoint.heard = { link, next: 0, nextShared: undefined };
    if (answers === 0) this.#greet(endpoint, link);
    this.#up(endpoint);
  }

  #ready({ from, link, nextShared }: RedisMessage & { kind: "ready" }): void {
    const endpoint = this.#endpoints.get(from.router);
    if (endpoint?.peer.epoch !== from.epoch) return;
    if (endpoint.heard?.link === link) endpoint.heard.nextShared = nextShared;
    else this.#missedHello(endpoint, link);
  }

  /** Completes a link whose hello was missed, unless it is left from before this end began again. */
  #missedHello(endpoint: Endpoint, link: number): void {
    if (link > Math.max(endpoint.given, endpoint.heard?.link ?? 0)) this.#restart(endpoint, link);
  }

  #frame(message: RedisMessage & { kind: "frame" | "shared" }, sizeBytes: number): void {
    const { clock, count, observer } = this.#options;
    const endpoint = this.#endpoints.get(message.from.router);
    if (!endpoint || endpoint.peer.epoch !== message.from.epoch) return;
    const { heard, up } = endpoint;
    if (message.kind === "frame" && message.link !== heard?.link) {
      this.#missedHello(endpoint, message.link);
      return;
    }
    const expected = message.kind === "frame" ? heard?.next : heard?.nextShared;
    if (!heard || !up || expected === undefined || message.counter < expected) return;
    if (message.counter > expected) {
      count("gap");
      this.#restart(endpoint, heard.link);
      return;
    }
    if (message.kind === "frame") heard.next = expected + 1;
    else heard.nextShared = expected + 1;
    up.stats.receivedBytes += sizeBytes;
    up.stats.receivedFrames++;
    up.stats.lastHeardMs = clock.nowMs();
    try {
      observer.frame(up, message.channel, message.frame);
    } catch (error) {
      if (!isPeersFault(error)) throw error;
      count("frame-invalid");
      this.#options.logger.warn("a frame from Redis was refused", {
        from: originKey(message.from),
        error: error.message,
      });
      up.close("frame-invalid");
    }
  }

  /** Begins a link to a router by a hello. */
  #open(peer: Origin): Endpoint {
    const endpoint = { peer, link: 0, next: 0, helloMs: 0, given: 0, heard: undefined, up: undefined };
    this.#endpoints.set(peer.router, endpoint);
    this.#number(endpoint);
    this.#greet(endpoint);
    return endpoint;
  }

  /** A new link has a number of its own; waiting frames still go under the old one. */
  #number(endpoint: Endpoint): void {
    this.#flush();
    endpoint.link = ++this.#lastLink;
    endpoint.next = 0;
  }

  #greet(endpoint: Endpoint, answers = 0): void {
    const { origin, clock, keys } = this.#options;
    endpoint.helloMs = clock.nowMs();
    void this.#publish(keys.inbox(endpoint.peer.router), {
      kind: "hello",
      from: origin(),
      link: endpoint.link,
      answers,
    });
  }

  /** @param given the peer's number whose messages are not waited for any more */
  #restart(endpoint: Endpoint, given: number): void {
    endpoint.given = Math.max(endpoint.given, given);
    endpoint.heard = undefined;
    this.#down(endpoint, "reset");
    this.#number(endpoint);
    this.#greet(endpoint);
  }

  #drop(endpoint: Endpoint, why: LinkEnd): void {
    if (this.#endpoints.get(endpoint.peer.router) === endpoint) this.#endpoints.delete(endpoint.peer.router);
    this.#down(endpoint, why);
  }

  #up(endpoint: Endpoint): void {
    const { clock, observer, origin, keys } = this.#options;
    // The waiting frames are not for this link.
    this.#flush();
    const ready = { kind: "ready", from: origin(), link: endpoint.link, nextShared: this.#nextShared } as const;
    void this.#publish(keys.inbox(endpoint.peer.router), ready);
    const link: RedisLink = new RedisLink(endpoint.peer, clock.nowMs(), {
      send: (channel, frame) => this.#send(endpoint, link, channel, frame),
      waitingBytes: (channel) => this.#waiting[channel],
      close: (why) => this.#close(endpoint, link, why),
    });
    endpoint.up = link;
    observer.up(link);
  }

  #down(endpoint: Endpoint, why: LinkEnd): void {
    const { up } = endpoint;
    if (!up) return;
    endpoint.up = undefined;
    for (const links of this.#full.values()) links.delete(up);
    this.#options.observer.down(up, why);
  }

  /** Begins the link again with a hello, some time later. */
  #close(endpoint: Endpoint, link: RedisLink, why: LinkEnd): void {
    if (endpoint.up !== link) return;
    endpoint.given = endpoint.heard?.link ?? 0;
    endpoint.heard = undefined;
    endpoint.helloMs = this.#options.clock.nowMs();
    this.#down(endpoint, why);
  }

  #send(endpoint: Endpoint, link: RedisLink, channel: Channel, frame: Uint8Array): boolean {
    if (endpoint.up !== link || !this.#session) return false;
    if (this.#waiting[channel] + frame.length > this.#options.limits.queueBytes[channel]) {
      this.#options.count("message-dropped");
      link.stats.droppedFrames++;
      const full = this.#full.get(channel) ?? new Set();
      this.#full.set(channel, full.add(link));
      return false;
    }
    link.stats.sentBytes += frame.length;
    link.stats.sentFrames++;
    const last = this.#outbox.at(-1);
    if (last?.frame === frame && last.channel === channel) {
      last.to.push(endpoint);
      return true;
    }
    this.#waiting[channel] += frame.length;
    if (this.#outbox.push({ channel, frame, to: [endpoint] }) === 1) queueMicrotask(() => this.#flush());
    return true;
  }

  /** Publishes the waiting frames; a frame for all links is published once. */
  #flush(): void {
    const { origin, keys } = this.#options;
    const outbox = this.#outbox;
    this.#outbox = [];
    const from = origin();
    const linked = this.links().length;
    for (const { channel, frame, to } of outbox) {
      const isForAll = to.length > 1 && to.length === linked && to.every(({ up }) => up);
      const published = isForAll
        ? [this.#publish(keys.all, { kind: "shared", from, counter: this.#nextShared++, channel, frame })]
        : to.map((endpoint) => {
            const { link, peer } = endpoint;
            const counter = endpoint.next++;
            return this.#publish(keys.inbox(peer.router), { kind: "frame", from, link, counter, channel, frame });
          });
      const session = this.#session;
      void Promise.all(published).then(() => session === this.#session && this.#sent(channel, frame.length));
    }
  }

  #sent(channel: Channel, bytes: number): void {
    this.#waiting[channel] -= bytes;
    if (this.#waiting[channel] > this.#options.limits.queueBytes[channel] / 2) return;
    const full = this.#full.get(channel);
    if (!full) return;
    this.#full.delete(channel);
    for (const link of full) this.#options.observer.drained(link, channel);
  }

  async #publish(to: string, message: RedisMessage): Promise<void> {
    const session = this.#session;
    if (!session) return;
    try {
      await session.run("PUBLISH", to, encodeRedisMessage(message));
    } catch (error) {
      this.#options.count("message-dropped");
      if (!session.isEnded) this.#options.logger.warn("Redis published no message", { error: String(error) });
    }
  }
}

interface RedisLinkParts {
  readonly send: (channel: Channel, frame: Uint8Array) => boolean;
  readonly waitingBytes: (channel: Channel) => number;
  readonly close: (why: LinkEnd) => void;
}

/** A link whose other end is known by its lease. All links share the queue of frames that wait for Redis. */
class RedisLink implements Link {
  readonly peer;
  readonly stats: LinkStats;
  /** Redis does not report it. */
  readonly roundTripMs = Number.NaN;
  readonly #parts: RedisLinkParts;

  constructor(origin: Origin, nowMs: number, parts: RedisLinkParts) {
    this.peer = { origin, address: undefined, version: messageVersion, capabilities: [noteCapability] };
    this.#parts = parts;
    const none = { sentBytes: 0, receivedBytes: 0, sentFrames: 0, receivedFrames: 0, droppedFrames: 0 };
    this.stats = { ...none, lastHeardMs: nowMs };
  }

  get bufferedBytes(): number {
    return channels.reduce((sum, channel) => sum + this.waitingBytes(channel), 0);
  }

  send(channel: Channel, frame: Uint8Array): boolean {
    return this.#parts.send(channel, frame);
  }

  waitingBytes(channel: Channel): number {
    return this.#parts.waitingBytes(channel);
  }

  close(why: LinkEnd): void {
    this.#parts.close(why);
  }
}
