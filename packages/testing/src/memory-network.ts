import {
  type Cancel,
  type Clock,
  type Connection,
  type ConnectionEnd,
  type ConnectionObserver,
  drainMarkBytes,
  maxUntrustedBytes,
  type Random,
  type Scheduler,
  type Transport,
} from "@espalier/core";

interface MemoryNetworkOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Draws the jitter. */
  readonly random: Random;
  /** Timeout of a dial. */
  readonly connectTimeoutMs?: number;
  /** Largest frame. */
  readonly maxFrameBytes?: number;
}

/**
 * An in-memory network with faults. As with TCP, frames on a cut link are not lost: they arrive in order when the link
 * is mended, unless the connection ended in the meantime.
 */
export interface MemoryNetwork {
  /** Bytes of all sent frames. */
  readonly bytesSent: number;
  /** A transport that listens at this address once started. */
  transport(address: string): Transport;
  /** @param direction default: all directions without their own speed */
  setSpeed(speed: Partial<PipeSpeed>, direction?: Direction): void;
  /** Cuts one direction; no dial succeeds in either. */
  cut(direction: Direction): void;
  mend(direction: Direction): void;
  /** Cuts all links between groups. An address in no group reaches all. */
  partition(groups: readonly (readonly string[])[]): void;
  /** A stopped process: it neither sends nor receives. */
  freeze(address: string): void;
  thaw(address: string): void;
  /** Dials to the address are refused; open connections stay. */
  refuse(address: string): void;
  /** Undoes all cuts, partitions, freezes and refusals. */
  heal(): void;
  /** Breaks all connections between two addresses. */
  reset(one: string, other: string): void;
  /** Kills a process: its peers see resets. A new transport may take its address. */
  kill(address: string): void;
}

/** A direction between two addresses. */
interface Direction {
  readonly from: string;
  readonly to: string;
}

/** Speed of a direction between two addresses. */
interface PipeSpeed {
  /** One way. */
  readonly delayMs: number;
  /** Added to the delay of each frame, uniform from 0; frames keep their order. */
  readonly jitterMs: number;
  /** Bandwidth; excess bytes are buffered at the sender. */
  readonly bytesPerMs: number;
}

/** Creates a network without faults or delays. */
export function createMemoryNetwork(options: MemoryNetworkOptions): MemoryNetwork {
  return new Network(options);
}

const defaultConnectTimeoutMs = 1_000;
const defaultMaxFrameBytes = 1_024 * 1_024;

type DialObserver = Parameters<Transport["dial"]>[1];

class Network implements MemoryNetwork {
  readonly options: Required<MemoryNetworkOptions>;
  readonly faults = new MemoryFaults();
  readonly listeners = new Map<string, MemoryTransport>();
  bytesSent = 0;
  readonly #ends = new Map<MemoryEnd, Direction>();
  /** Transports that were not started. */
  readonly #unstarted = new Set<MemoryTransport>();

  constructor(options: MemoryNetworkOptions) {
    this.options = { connectTimeoutMs: defaultConnectTimeoutMs, maxFrameBytes: defaultMaxFrameBytes, ...options };
  }

  transport(address: string): Transport {
    const transport = new MemoryTransport(this, address);
    this.#unstarted.add(transport);
    return transport;
  }

  started(transport: MemoryTransport): void {
    this.#unstarted.delete(transport);
  }

  setSpeed(speed: Partial<PipeSpeed>, direction?: Direction): void {
    this.faults.setSpeed(speed, direction);
  }

  cut(direction: Direction): void {
    this.faults.setCut(direction, true);
  }

  mend(direction: Direction): void {
    this.faults.setCut(direction, false);
    this.#resume();
  }

  partition(groups: readonly (readonly string[])[]): void {
    this.faults.partition(groups);
    this.#resume();
  }

  freeze(address: string): void {
    this.faults.frozen.add(address);
  }

  thaw(address: string): void {
    this.faults.frozen.delete(address);
    this.#resume();
  }

  refuse(address: string): void {
    this.faults.refusing.add(address);
  }

  heal(): void {
    this.faults.heal();
    this.#resume();
  }

  reset(one: string, other: string): void {
    for (const [end, { from, to }] of [...this.#ends]) {
      if ((from === one && to === other) || (from === other && to === one)) end.terminate();
    }
  }

  kill(address: string): void {
    this.thaw(address);
    this.listeners.get(address)?.die();
    // A process may be killed before it starts its transport, and its code still runs.
    for (const transport of this.#unstarted) if (transport.place === address) transport.die();
    for (const end of this.endsOf(address)) end.vanish();
  }

  endsOf(address: string): readonly MemoryEnd[] {
    return [...this.#ends].filter(([, { from }]) => from === address).map(([end]) => end);
  }

  /** Connects two transports; returns the end of each. */
  connect(from: string, to: string): { readonly dialed: MemoryEnd; readonly accepted: MemoryEnd } {
    const dialed = this.#end({ from, to });
    const accepted = this.#end({ from: to, to: from });
    MemoryEnd.join(dialed, accepted);
    return { dialed, accepted };
  }

  #end(direction: Direction): MemoryEnd {
    const { clock, scheduler, random, maxFrameBytes } = this.options;
    const end = new MemoryEnd({
      scheduler,
      maxFrameBytes,
      remote: direction.to,
      pipe: {
        clock,
        scheduler,
        random,
        speed: () => this.faults.speed(direction),
        isCut: () => this.faults.isCut(direction),
      },
      onSent: (bytes) => {
        this.bytesSent += bytes;
      },
      onEnded: () => this.#ends.delete(end),
    });
    this.#ends.set(end, direction);
    return end;
  }

  #resume(): void {
    for (const end of [...this.#ends.keys()]) end.resume();
  }
}

class MemoryTransport implements Transport {
  readonly #network: Network;
  /** Where it listens once started. */
  readonly place: string;
  readonly #dials = new Set<(end: ConnectionEnd) => void>();
  accept: (connection: Connection) => ConnectionObserver = () => {
    throw new TypeError("the transport was started before onConnection");
  };
  #state: "new" | "running" | "stopped" = "new";
  /** Its process was killed. */
  #isDead = false;

  constructor(network: Network, address: string) {
    this.#network = network;
    this.place = address;
  }

  get address(): string {
    return this.#state === "new" ? "" : this.place;
  }

  async start(): Promise<void> {
    this.#network.started(this);
    if (this.#isDead) return;
    if (this.#network.listeners.has(this.place)) throw new RangeError(`${this.place} is taken`);
    this.#network.listeners.set(this.place, this);
    this.#state = "running";
  }

  async stop(): Promise<void> {
    if (this.#state !== "running") return;
    this.#close();
    for (const end of this.#network.endsOf(this.place)) end.close(1001, "stopped");
    for (const fail of this.#dials) {
      this.#network.options.scheduler.after(0, () => fail({ kind: "closed", code: 1001, reason: "stopped" }));
    }
  }

  /** Stops listening and dialing, without notice. */
  die(): void {
    this.#isDead = true;
    this.#network.started(this);
    this.#close();
    this.#dials.clear();
  }

  #close(): void {
    this.#state = "stopped";
    if (this.#network.listeners.get(this.place) === this) this.#network.listeners.delete(this.place);
  }

  onConnection(accept: (connection: Connection) => ConnectionObserver): void {
    this.accept = accept;
  }

  dial(address: string, observer: DialObserver): void {
    const { faults, options, listeners } = this.#network;
    const there = { from: this.place, to: address };
    const back = { from: address, to: this.place };
    const { scheduler } = options;
    if (this.#isDead) return;
    if (this.#state !== "running") throw new TypeError("only a running transport dials");
    const cancelTimeout = scheduler.after(options.connectTimeoutMs, () =>
      fail({ kind: "timeout", code: 0, reason: `no answer in ${options.connectTimeoutMs} ms` }),
    );
    const settle = (): boolean => {
      cancelTimeout();
      return this.#dials.delete(fail);
    };
    const fail = (end: ConnectionEnd): void => {
      if (settle()) observer.closed(end);
    };
    this.#dials.add(fail);
    const answer = (listener: MemoryTransport | undefined): void => {
      if (faults.isCut(back) || this.#state !== "running" || !this.#dials.has(fail)) return;
      if (!listener || listeners.get(address) !== listener) {
        fail({ kind: "refused", code: 0, reason: "nothing listens" });
        return;
      }
      settle();
      const { dialed, accepted } = this.#network.connect(this.place, address);
      accepted.observe(listener.accept(accepted));
      dialed.observe(observer);
      observer.opened(dialed);
    };
    scheduler.after(faults.speed(there).delayMs, () => {
      if (faults.isCut(there)) return;
      const listener = faults.refusing.has(address) ? undefined : listeners.get(address);
      scheduler.after(faults.speed(back).delayMs, () => answer(listener));
    });
  }
}

const keyOf = ({ from, to }: Direction): string => `${from}>${to}`;

/** The active faults of a network in memory. */
class MemoryFaults {
  readonly #speeds = new Map<string, PipeSpeed>();
  readonly #cuts = new Set<string>();
  readonly frozen = new Set<string>();
  readonly refusing = new Set<string>();
  #groups = new Map<string, number>();
  #speed: PipeSpeed = { delayMs: 0, jitterMs: 0, bytesPerMs: Number.POSITIVE_INFINITY };

  speed(direction: Direction): PipeSpeed {
    return this.#speeds.get(keyOf(direction)) ?? this.#speed;
  }

  setSpeed(speed: Partial<PipeSpeed>, direction?: Direction): void {
    if (direction) this.#speeds.set(keyOf(direction), { ...this.speed(direction), ...speed });
    else this.#speed = { ...this.#speed, ...speed };
  }

  setCut(direction: Direction, isCut: boolean): void {
    if (isCut) this.#cuts.add(keyOf(direction));
    else this.#cuts.delete(keyOf(direction));
  }

  partition(groups: readonly (readonly string[])[]): void {
    this.#groups = new Map(groups.flatMap((group, index) => group.map((address) => [address, index] as const)));
  }

  heal(): void {
    this.#cuts.clear();
    this.#groups.clear();
    this.frozen.clear();
    this.refusing.clear();
  }

  isCut(direction: Direction): boolean {
    const { from, to } = direction;
    if (this.frozen.has(from) || this.frozen.has(to) || this.#cuts.has(keyOf(direction))) return true;
    const here = this.#groups.get(from);
    const there = this.#groups.get(to);
    return here !== undefined && there !== undefined && here !== there;
  }
}

interface PipeDeps {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  speed(): PipeSpeed;
  /** Whether the direction is cut now. */
  isCut(): boolean;
  deliver(item: PipeItem): void;
  drained(): void;
}

type PipeItem = { readonly frame: Uint8Array } | { readonly end: ConnectionEnd };

/** One direction of a connection in memory: a frame leaves at the pace of the wire and arrives after its delay. */
class MemoryPipe {
  readonly #deps: PipeDeps;
  readonly #waiting: PipeItem[] = [];
  readonly #flying: { readonly item: PipeItem; readonly dueMs: number }[] = [];
  #isAboveMark = false;
  #cancelLeaving: Cancel | undefined;
  #cancelArrival: Cancel | undefined;
  #isClosed = false;
  bufferedBytes = 0;

  constructor(deps: PipeDeps) {
    this.#deps = deps;
  }

  send(item: PipeItem): void {
    if (this.#isClosed) return;
    this.#waiting.push(item);
    this.bufferedBytes += sizeOf(item);
    this.resume();
    if (this.bufferedBytes >= drainMarkBytes) this.#isAboveMark = true;
  }

  /** Continues after a cut. */
  resume(): void {
    this.#leave();
    this.#awaitArrival();
  }

  /** Drops frames that have not left. */
  discard(): void {
    this.#cancelLeaving?.();
    this.#cancelLeaving = undefined;
    this.#waiting.length = 0;
    this.bufferedBytes = 0;
  }

  /** Drops all frames, those in flight included. */
  close(): void {
    this.#isClosed = true;
    this.discard();
    this.#cancelArrival?.();
    this.#flying.length = 0;
  }

  #leave(): void {
    while (!this.#cancelLeaving && !this.#isClosed && !this.#deps.isCut()) {
      const [item] = this.#waiting;
      if (!item) return;
      const takesMs = sizeOf(item) / this.#deps.speed().bytesPerMs;
      if (takesMs > 0) {
        this.#cancelLeaving = this.#deps.scheduler.after(takesMs, () => {
          this.#cancelLeaving = undefined;
          this.#depart();
          this.#leave();
        });
        return;
      }
      this.#depart();
    }
  }

  #depart(): void {
    const item = this.#waiting.shift();
    if (!item) return;
    const { delayMs, jitterMs } = this.#deps.speed();
    const dueMs = this.#deps.clock.nowMs() + delayMs + jitterMs * this.#deps.random.float();
    this.#flying.push({ item, dueMs: Math.max(dueMs, this.#flying.at(-1)?.dueMs ?? 0) });
    this.bufferedBytes -= sizeOf(item);
    this.#awaitArrival();
    if (this.#isAboveMark && this.bufferedBytes < drainMarkBytes) {
      this.#isAboveMark = false;
      this.#deps.drained();
    }
  }

  #awaitArrival(): void {
    const next = this.#flying[0];
    if (!next || this.#cancelArrival || this.#isClosed || this.#deps.isCut()) return;
    const inMs = Math.max(0, next.dueMs - this.#deps.clock.nowMs());
    this.#cancelArrival = this.#deps.scheduler.after(inMs, () => {
      this.#cancelArrival = undefined;
      if (this.#deps.isCut()) return;
      this.#flying.shift();
      this.#deps.deliver(next.item);
      this.#awaitArrival();
    });
  }
}

const sizeOf = (item: PipeItem): number => ("frame" in item ? item.frame.length : 0);

interface MemoryEndDeps {
  readonly scheduler: Scheduler;
  readonly remote: string;
  readonly maxFrameBytes: number;
  /** Speed of the direction away from this end. */
  readonly pipe: Omit<PipeDeps, "deliver" | "drained">;
  onSent(bytes: number): void;
  onEnded(end: MemoryEnd): void;
}

/** One end of a connection in memory. */
class MemoryEnd implements Connection {
  readonly remote: string;
  readonly #deps: MemoryEndDeps;
  readonly #out: MemoryPipe;
  #observer: ConnectionObserver | undefined;
  #peer: MemoryEnd | undefined;
  #isTrusted = false;
  #untrustedBytes = 0;
  #state: "open" | "closing" | "ended" = "open";

  constructor(deps: MemoryEndDeps) {
    this.#deps = deps;
    this.remote = deps.remote;
    this.#out = new MemoryPipe({
      ...deps.pipe,
      deliver: (item) => this.#peer?.receive(item),
      drained: () => {
        if (this.#state === "open") this.#observer?.drained();
      },
    });
  }

  /** Ties two ends together. */
  static join(one: MemoryEnd, other: MemoryEnd): void {
    one.#peer = other;
    other.#peer = one;
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  get bufferedBytes(): number {
    return this.#out.bufferedBytes;
  }

  trust(): void {
    this.#isTrusted = true;
  }

  send(frame: Uint8Array): void {
    if (this.#state !== "open") return;
    this.#deps.onSent(frame.length);
    this.#out.send({ frame });
  }

  close(code: number, reason: string): void {
    this.#finish({ kind: "closed", code, reason });
  }

  terminate(): void {
    this.#out.discard();
    this.#finish({ kind: "reset", code: 1006, reason: "terminated" });
  }

  /** Ends like a killed process: without notice to its own observer, with a reset at the other end if it is reachable. */
  vanish(): void {
    this.#out.discard();
    this.#observer = undefined;
    this.#finish({ kind: "reset", code: 1006, reason: "the process was killed" });
  }

  /** Continues both directions after a cut. */
  resume(): void {
    this.#out.resume();
    if (this.#peer) this.#peer.#out.resume();
  }

  receive(item: PipeItem): void {
    if (this.#state !== "open") return;
    if ("end" in item) {
      this.#state = "closing";
      this.#out.close();
      this.#end(item.end);
      return;
    }
    if (!this.#isTrusted) this.#untrustedBytes += item.frame.length;
    if (item.frame.length > this.#deps.maxFrameBytes || this.#untrustedBytes > maxUntrustedBytes) {
      this.#out.send({ end: { kind: "closed", code: 1009, reason: "" } });
      this.#state = "closing";
      this.#end({ kind: "error", code: 1009, reason: "too many bytes" });
      return;
    }
    this.#observer?.frame(item.frame);
  }

  #finish(end: ConnectionEnd): void {
    if (this.#state !== "open") return;
    this.#state = "closing";
    this.#out.send({ end });
    this.#deps.scheduler.after(0, () => this.#end(end));
  }

  #end(end: ConnectionEnd): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#deps.onEnded(this);
    this.#observer?.closed(end);
  }
}
