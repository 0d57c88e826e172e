import type { Connection, ConnectionEnd, ConnectionObserver, Random, Transport } from "@espalier/core";

type DialObserver = Parameters<Transport["dial"]>[1];

/**
 * A network in which nothing arrives by itself: every delivery is picked by who holds it, in any order among connections
 * and in the order of sending within each direction of one.
 */
export interface ScheduledNetwork {
  transport(address: string): Transport;
  /** Lets one event arrive, of those that may. @returns false when there is none */
  deliver(): boolean;
  /** Breaks one connection. @returns false when there is none */
  breakOne(): boolean;
  /** Nothing arrives at this address or from it, until `heal`. */
  isolate(address: string): void;
  reset(address: string): void;
  heal(): void;
  /** The process is gone: it hears nothing more, the others hear resets. */
  kill(address: string): void;
}

const reset: ConnectionEnd = { kind: "reset", code: 1006, reason: "broken" };
const refused: ConnectionEnd = { kind: "refused", code: 0, reason: "nothing listens" };

/** One direction between two processes, or a dial: events in their order. */
interface EventQueue {
  readonly from: string;
  readonly to: string;
  readonly events: (() => void)[];
}

export function createScheduledNetwork(random: Random): ScheduledNetwork {
  return new Network(random);
}

class Network implements ScheduledNetwork {
  readonly listeners = new Map<string, ScheduledTransport>();
  readonly #random: Random;
  readonly #queues = new Set<EventQueue>();
  readonly #ends = new Set<End>();
  readonly #isolated = new Set<string>();

  constructor(random: Random) {
    this.#random = random;
  }

  transport(address: string): Transport {
    return new ScheduledTransport(this, address);
  }

  deliver(): boolean {
    const open = [...this.#queues].filter(({ from, to, events }) => events.length > 0 && !this.#isCut(from, to));
    const queue = open[this.#random.integer(Math.max(1, open.length))];
    const event = queue?.events.shift();
    event?.();
    return event !== undefined;
  }

  breakOne(): boolean {
    const ends = [...this.#ends];
    const end = ends[this.#random.integer(Math.max(1, ends.length))];
    end?.terminate();
    return end !== undefined;
  }

  isolate(address: string): void {
    this.#isolated.add(address);
  }

  reset(address: string): void {
    for (const end of this.#endsOf(address)) end.terminate();
  }

  heal(): void {
    this.#isolated.clear();
  }

  kill(address: string): void {
    this.listeners.delete(address);
    for (const end of this.#endsOf(address)) end.vanish();
    for (const queue of [...this.#queues])
      if (queue.from === address && queue.events.length === 0) this.#queues.delete(queue);
  }

  queue(from: string, to: string): EventQueue {
    const queue: EventQueue = { from, to, events: [] };
    this.#queues.add(queue);
    return queue;
  }

  closeQueue(queue: EventQueue): void {
    this.#queues.delete(queue);
  }

  /** Connects two processes; the ends know of each other. */
  connect(from: string, to: string): { dialed: End; accepted: End } {
    const dialed = new End(this, from, to);
    const accepted = new End(this, to, from);
    End.join(dialed, accepted);
    for (const end of [dialed, accepted]) this.#ends.add(end);
    return { dialed, accepted };
  }

  forget(end: End): void {
    this.#ends.delete(end);
  }

  #endsOf(address: string): End[] {
    return [...this.#ends].filter(({ address: at }) => at === address);
  }

  #isCut(from: string, to: string): boolean {
    return from !== to && (this.#isolated.has(from) || this.#isolated.has(to));
  }
}

/** One end of a connection. What it is told of itself comes by a queue of its own, so never from inside a call to it. */
class End implements Connection {
  readonly address: string;
  readonly remote: string;
  readonly bufferedBytes = 0;
  readonly #network: Network;
  readonly #out: EventQueue;
  readonly #self: EventQueue;
  #peer: End | undefined;
  #observer: ConnectionObserver | undefined;
  #isOpen = true;

  constructor(network: Network, address: string, remote: string) {
    this.#network = network;
    this.address = address;
    this.remote = remote;
    this.#out = network.queue(address, remote);
    this.#self = network.queue(address, address);
  }

  static join(one: End, other: End): void {
    one.#peer = other;
    other.#peer = one;
  }

  observe(observer: ConnectionObserver): void {
    this.#observer = observer;
  }

  trust(): void {}

  send(frame: Uint8Array): void {
    const copy = frame.slice();
    if (this.#isOpen) this.#out.events.push(() => this.#peer?.receive(copy));
  }

  close(code: number, reason: string): void {
    this.#finish({ kind: "closed", code, reason });
  }

  terminate(): void {
    this.#out.events.length = 0;
    this.#finish(reset);
  }

  vanish(): void {
    this.#observer = undefined;
    this.terminate();
  }

  receive(frame: Uint8Array): void {
    if (this.#isOpen) this.#observer?.frame(frame);
  }

  #finish(end: ConnectionEnd): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#out.events.push(() => {
      this.#network.closeQueue(this.#out);
      this.#peer?.endedByPeer(end);
    });
    this.#self.events.push(() => this.#tell(end));
  }

  endedByPeer(end: ConnectionEnd): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#network.closeQueue(this.#out);
    this.#tell(end);
  }

  #tell(end: ConnectionEnd): void {
    this.#network.closeQueue(this.#self);
    this.#network.forget(this);
    this.#observer?.closed(end);
    this.#observer = undefined;
  }
}

class ScheduledTransport implements Transport {
  readonly #network: Network;
  readonly #address: string;
  #accept: (connection: Connection) => ConnectionObserver = () => {
    throw new TypeError("the transport was started before onConnection");
  };
  #isRunning = false;

  constructor(network: Network, address: string) {
    this.#network = network;
    this.#address = address;
  }

  get address(): string {
    return this.#isRunning ? this.#address : "";
  }

  async start(): Promise<void> {
    this.#network.listeners.set(this.#address, this);
    this.#isRunning = true;
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    if (this.#network.listeners.get(this.#address) === this) this.#network.listeners.delete(this.#address);
  }

  onConnection(accept: (connection: Connection) => ConnectionObserver): void {
    this.#accept = accept;
  }

  dial(address: string, observer: DialObserver): void {
    const there = this.#network.queue(this.#address, address);
    there.events.push(() => {
      this.#network.closeQueue(there);
      const listener = this.#network.listeners.get(address);
      const back = this.#network.queue(address, this.#address);
      back.events.push(() => {
        this.#network.closeQueue(back);
        if (!this.#isRunning) return;
        if (!listener || this.#network.listeners.get(address) !== listener) observer.closed(refused);
        else this.#open(address, listener, observer);
      });
    });
  }

  #open(address: string, listener: ScheduledTransport, observer: DialObserver): void {
    const { dialed, accepted } = this.#network.connect(this.#address, address);
    accepted.observe(listener.#accept(accepted));
    dialed.observe(observer);
    observer.opened(dialed);
  }
}
