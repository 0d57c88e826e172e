import {
  type Cancel,
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  maxUntrustedBytes,
  oneOf,
  rest,
  type Scheduler,
  struct,
  type Transport,
  text,
  varint,
  versioned,
  whole,
} from "@espalier/core";
import type { CountIncident, RedisKeys, RedisLimits } from "./redis-keys.ts";
import type { RedisSession } from "./redis-session.ts";

/**
 * What the two ends of a connection publish to each other. `open` and `accept` begin it, `credit` says how many bytes of
 * frames were read, `reset` that its sender knows no such connection any more.
 */
const kinds = ["open", "accept", "frame", "credit", "close", "reset"] as const;

type Kind = (typeof kinds)[number];

export interface RedisMessage {
  readonly kind: Kind;
  /** The sender's address. */
  readonly from: string;
  /** Chosen by the end that dialed; no number occurs twice for one address. */
  readonly connection: number;
  /** Whether the sender is the end that dialed. */
  readonly isDialer: boolean;
  /** The sender's messages on this connection, counted; 0 for a reset, which has no place among them. */
  readonly counter: number;
  readonly body: Uint8Array;
}

/** UTF-8 bytes of an address or of the reason of a close. */
const maxAddressBytes = 256;
/** The most of a message that is not its body. */
const headerBytes = 320;
const noBytes = new Uint8Array();

const messages = versioned(
  1,
  struct({
    kind: oneOf<Kind>(...kinds),
    from: text(maxAddressBytes),
    connection: varint(),
    isDialer: oneOf(false, true),
    counter: varint(),
    body: rest(),
  }),
);
/** Bodies; the other messages have none, but for a frame, which is its own. */
const credits = whole(struct({ bytes: varint() }));
const closes = whole(struct({ code: varint(), reason: text(maxAddressBytes) }));

export const redisLayouts = {
  message: messages.layout,
  "body of a credit": credits.layout,
  "body of a close": closes.layout,
};

export function encodeRedisMessage(message: RedisMessage): Uint8Array<ArrayBuffer> {
  return messages.encode(message, message.from.length + 32 + message.body.length);
}

/** @throws RangeError for bytes that are no message of this version, and for one longer than a frame may make it */
export function decodeRedisMessage(bytes: Uint8Array, maxFrameBytes: number): RedisMessage {
  // One byte more than the largest frame still ends its connection in good order.
  const maxBytes = maxFrameBytes + headerBytes;
  if (bytes.length > maxBytes) throw new RangeError(`${bytes.length} bytes, maximum ${maxBytes}`);
  return messages.decode(bytes);
}

const resetEnd = (reason: string): ConnectionEnd => ({ kind: "reset", code: 1006, reason });

export interface RedisTransportOptions {
  /** `host:port`, of this process alone: a later run has another one. */
  readonly address: string;
  readonly keys: Pick<RedisKeys, "inbox">;
  readonly limits: Pick<RedisLimits, "maxFrameBytes" | "windowBytes" | "connectTimeoutMs" | "maxMembers">;
  readonly scheduler: Scheduler;
  readonly count: CountIncident;
  /** Whether no router has the address any more. Without subscribers alone it may be back soon. */
  readonly isGone: (address: string) => boolean;
}

/**
 * Connections through publish/subscribe: a channel for each router, on which the ends of its connections find what is
 * sent to them. Redis may lose messages. So each end counts them, and a connection that misses one ends, as does every
 * connection when the session with Redis does.
 */
export class RedisTransport implements Transport {
  readonly #options: RedisTransportOptions;
  readonly #connections = new Map<string, RedisConnection>();
  readonly #publishing = new Set<Promise<unknown>>();
  #accept: (connection: Connection) => ConnectionObserver = () => {
    throw new TypeError("the transport was started before onConnection");
  };
  #session: RedisSession | undefined;
  #state: "new" | "running" | "stopped" = "new";
  #dialed = 0;

  constructor(options: RedisTransportOptions) {
    this.#options = options;
  }

  get address(): string {
    return this.#state === "new" ? "" : this.#options.address;
  }

  onConnection(accept: (connection: Connection) => ConnectionObserver): void {
    this.#accept = accept;
  }

  async start(): Promise<void> {
    this.#state = "running";
  }

  /** Ends all connections; settles once Redis has taken what was sent before. */
  async stop(): Promise<void> {
    if (this.#state !== "running") return;
    this.#state = "stopped";
    for (const connection of [...this.#connections.values()]) connection.close(1001, "stopped");
    await this.flushed();
  }

  /** Settles once Redis has taken all that was published before, or has failed to. */
  async flushed(): Promise<void> {
    await Promise.allSettled([...this.#publishing]);
  }

  /** Begins to carry frames by this session; dials that wait for one are published. */
  attach(session: RedisSession): void {
    this.#session = session;
    for (const connection of this.#connections.values()) connection.open();
  }

  /** Ends all connections: what Redis had of them may be lost. */
  detach(): void {
    if (!this.#session) return;
    this.#session = undefined;
    for (const connection of [...this.#connections.values()]) connection.end(resetEnd("Redis unavailable"));
  }

  dial(address: string, observer: Parameters<Transport["dial"]>[1]): void {
    if (this.#state !== "running") throw new TypeError("only a running transport dials");
    const connection = this.#add(address, ++this.#dialed, true, observer);
    connection.opened = () => observer.opened(connection);
    connection.open();
  }

  /** Takes a message as it arrived. */
  receive(bytes: Uint8Array): void {
    let message: RedisMessage;
    try {
      message = decodeRedisMessage(bytes, this.#options.limits.maxFrameBytes);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#options.count("message-invalid");
      return;
    }
    const { kind, from, connection: number, isDialer, counter } = message;
    const known = this.#connections.get(keyOf(from, number, !isDialer));
    if (known) known.receive(message);
    else if (kind === "open" && counter === 0 && isDialer && this.#hasCapacity) this.#accepted(from, number);
    else if (kind !== "reset") void this.#publish(from, { ...message, kind: "reset", isDialer: !isDialer, counter: 0 });
  }

  get #hasCapacity(): boolean {
    // Both ends may dial, and a link may be made anew while the one before it ends.
    return this.#state === "running" && this.#connections.size < 4 * this.#options.limits.maxMembers;
  }

  #accepted(from: string, number: number): void {
    const connection = this.#add(from, number, false, undefined);
    connection.accept();
    connection.observe(this.#accept(connection));
  }

  #add(remote: string, number: number, isDialer: boolean, observer: ConnectionObserver | undefined): RedisConnection {
    const key = keyOf(remote, number, isDialer);
    const { limits, scheduler, count, isGone } = this.#options;
    const connection: RedisConnection = new RedisConnection({
      ...{ remote, limits, scheduler, count },
      observer,
      isAttached: () => this.#session !== undefined,
      publish: (kind, counter, body) =>
        this.#publish(remote, { kind, connection: number, isDialer, counter, body, from: "" }),
      isGone: () => isGone(remote),
      remove: () => this.#connections.delete(key),
    });
    this.#connections.set(key, connection);
    return connection;
  }

  /** @returns how many have received it, as far as Redis knows; undefined when Redis has not taken it */
  #publish(to: string, message: RedisMessage): Promise<number | undefined> {
    const { address, keys, count } = this.#options;
    const session = this.#session;
    if (!session) return Promise.resolve(undefined);
    const bytes = encodeRedisMessage({ ...message, from: address });
    const published = session.run("PUBLISH", keys.inbox(to), bytes).then(
      (receivers) => Number(receivers),
      () => {
        count("message-dropped");
        return undefined;
      },
    );
    this.#publishing.add(published);
    void published.then(() => this.#publishing.delete(published));
    return published;
  }
}

const keyOf = (remote: string, number: number, isDialer: boolean): string => `${remote} ${number} ${isDialer}`;

interface RedisConnectionParts {
  readonly remote: string;
  readonly limits: RedisTransportOptions["limits"];
  readonly scheduler: Scheduler;
  readonly count: CountIncident;
  readonly observer: ConnectionObserver | undefined;
  readonly isAttached: () => boolean;
  readonly publish: (kind: Kind, counter: number, body: Uint8Array) => Promise<number | undefined>;
  readonly isGone: () => boolean;
  readonly remove: () => void;
}

/** One end of a connection. */
class RedisConnection implements Connection {
  readonly remote: string;
  /** Called once the other end has accepted; undefined at the end that accepts. */
  opened: (() => void) | undefined;
  readonly #parts: RedisConnectionParts;
  #observer: ConnectionObserver | undefined;
  /** Frames that wait for credit. */
  #waiting: Uint8Array[] = [];
  #bufferedBytes = 0;
  /** Bytes of frames published and not yet read by the other end. */
  #flyingBytes = 0;
  /** Bytes read and not credited. */
  #owedBytes = 0;
  #sent = 0;
  #received = 0;
  #untrustedBytes = 0;
  #isTrusted = false;
  #isAboveMark = false;
  #hasEnded = false;
  #cancelDial: Cancel = () => {};

  constructor(parts: RedisConnectionParts) {
    this.#parts = parts;
    this.#observer = parts.observer;
    this.remote = parts.remote;
  }

  get bufferedBytes(): number {
    return this.#bufferedBytes;
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  /** Dials, or waits for a session by which it can. */
  open(): void {
    if (this.#sent > 0 || this.#hasEnded) return;
    const { scheduler, limits, isAttached, isGone } = this.#parts;
    this.#cancelDial();
    this.#cancelDial = scheduler.after(limits.connectTimeoutMs, () => {
      this.#publishReset();
      this.end({ kind: "timeout", code: 0, reason: `no answer in ${limits.connectTimeoutMs} ms` });
    });
    if (!isAttached()) return;
    void this.#publish("open").then((receivers) => {
      // A cluster of Redis counts the subscribers of one node: the other end may have answered all the same.
      if (receivers === 0 && this.#received === 0 && isGone())
        this.end({ kind: "refused", code: 0, reason: "no router has this address" });
    });
  }

  accept(): void {
    this.#received = 1;
    void this.#publish("accept");
  }

  trust(): void {
    this.#isTrusted = true;
  }

  send(frame: Uint8Array): void {
    if (this.#hasEnded) return;
    this.#waiting.push(frame);
    this.#bufferedBytes += frame.length;
    this.#flush();
    if (this.#bufferedBytes >= drainMarkBytes) this.#isAboveMark = true;
  }

  close(code: number, reason: string): void {
    if (this.#hasEnded) return;
    // What waits for credit goes first: the other end takes it, or has gone.
    for (const frame of this.#waiting) void this.#publish("frame", frame);
    void this.#publish("close", closes.encode({ code, reason }));
    this.end({ kind: "closed", code, reason });
  }

  terminate(): void {
    if (this.#hasEnded) return;
    this.#publishReset();
    this.end(resetEnd("broken off"));
  }

  /** Ends this end. The observer hears of it a little later. */
  end(end: ConnectionEnd): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#waiting = [];
    this.#bufferedBytes = 0;
    this.#cancelDial();
    this.#parts.remove();
    this.#parts.scheduler.after(0, () => this.#observer?.closed(end));
  }

  receive({ kind, counter, body }: RedisMessage): void {
    if (kind === "reset") {
      this.end(resetEnd("reset by the other end"));
      return;
    }
    if (counter !== this.#received++) {
      this.#parts.count("gap");
      this.terminate();
      return;
    }
    switch (kind) {
      case "accept":
        this.#cancelDial();
        this.opened?.();
        return;
      case "frame":
        this.#frame(body);
        return;
      case "credit":
        this.#decoded(
          () => credits.decode(body),
          ({ bytes }) => {
            this.#flyingBytes -= bytes;
            this.#flush();
          },
        );
        return;
      case "close":
        this.#decoded(
          () => closes.decode(body),
          (end) => this.end({ kind: "closed", ...end }),
        );
        return;
      default:
        this.#breakOff(1002, `a message ${kind} on an open connection`);
    }
  }

  /** Decodes, then delivers: only what the other end wrote is its fault. */
  #decoded<Value>(decode: () => Value, deliver: (value: Value) => void): void {
    let value: Value;
    try {
      value = decode();
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.#breakOff(1002, error.message);
      return;
    }
    deliver(value);
  }

  #frame(frame: Uint8Array): void {
    const { maxFrameBytes, windowBytes } = this.#parts.limits;
    if (!this.#isTrusted) this.#untrustedBytes += frame.length;
    if (frame.length > maxFrameBytes || this.#untrustedBytes > maxUntrustedBytes) {
      this.#breakOff(1009, frame.length > maxFrameBytes ? "a frame too large" : "too many bytes of a stranger");
      return;
    }
    this.#observer?.frame(frame);
    this.#owedBytes += frame.length;
    if (this.#hasEnded || this.#owedBytes < windowBytes / 4) return;
    void this.#publish("credit", credits.encode({ bytes: this.#owedBytes }));
    this.#owedBytes = 0;
  }

  #breakOff(code: number, reason: string): void {
    void this.#publish("close", closes.encode({ code, reason }));
    this.end({ kind: "error", code, reason });
  }

  #flush(): void {
    const { windowBytes } = this.#parts.limits;
    let sent = 0;
    for (const frame of this.#waiting) {
      if (this.#flyingBytes >= windowBytes) break;
      sent += 1;
      this.#flyingBytes += frame.length;
      void this.#publish("frame", frame).then(() => this.#left(frame.length));
    }
    if (sent > 0) this.#waiting = this.#waiting.slice(sent);
  }

  #left(bytes: number): void {
    if (this.#hasEnded) return;
    this.#bufferedBytes -= bytes;
    if (!this.#isAboveMark || this.#bufferedBytes >= drainMarkBytes) return;
    this.#isAboveMark = false;
    this.#observer?.drained();
  }

  async #publish(kind: Kind, body: Uint8Array = noBytes): Promise<number | undefined> {
    const receivers = await this.#parts.publish(kind, this.#sent++, body);
    if (receivers === undefined) this.end(resetEnd("Redis rejected a message"));
    return receivers;
  }

  #publishReset(): void {
    if (this.#sent > 0) void this.#parts.publish("reset", 0, noBytes);
  }
}
