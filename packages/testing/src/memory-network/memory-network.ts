import type {
  Clock,
  Connection,
  ConnectionEnd,
  ConnectionObserver,
  Random,
  Scheduler,
  Transport,
} from "@espalier/common";
import { MemoryEnd, type PipeSpeed } from "./memory-connection.ts";

export interface MemoryNetworkOptions {
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  /** Draws the jitter. */
  readonly random: Random;
  /** How long a dial waits for an answer. */
  readonly connectTimeoutMs?: number;
  /** Largest frame that any transport of the network takes. */
  readonly maxFrameBytes?: number;
}

/**
 * A network in memory with faults to order. As with TCP, what is cut off is not lost: it arrives, in order, when the
 * network is mended, unless the connection was ended meanwhile.
 */
export interface MemoryNetwork {
  /** Of all frames that were sent. */
  readonly bytesSent: number;
  /** The transport of a process that listens at this address once started. */
  transport(address: string): Transport;
  /** @param direction all directions without a speed of their own when left out */
  setSpeed(speed: Partial<PipeSpeed>, direction?: Direction): void;
  /** Nothing gets through in one direction, and no dial succeeds in either. */
  cut(direction: Direction): void;
  mend(direction: Direction): void;
  /** Groups hear nothing of each other. An address in none of them hears all. */
  partition(groups: readonly (readonly string[])[]): void;
  /** A stopped process: it neither sends nor receives. */
  freeze(address: string): void;
  thaw(address: string): void;
  /** Dials to the address are refused, though connections live on. */
  refuse(address: string): void;
  /** Undoes all cuts, partitions, freezes and refusals. */
  heal(): void;
  /** Breaks all connections between two addresses. */
  reset(one: string, other: string): void;
  /** The process is gone: others hear resets, it hears nothing. A new transport may take its address. */
  kill(address: string): void;
}

/** Makes a network without faults or delays. */
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
    // A process may end before it has come to start its transport, and what it has begun still runs to its end.
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
  /** Its process is gone. */
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

  /** Neither listens nor dials any more, and says nothing of it. */
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

/** A direction between two addresses. */
export interface Direction {
  readonly from: string;
  readonly to: string;
}

const keyOf = ({ from, to }: Direction): string => `${from}>${to}`;

/** What is wrong with a network in memory at the moment. */
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
