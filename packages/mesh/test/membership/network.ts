import { asRouterId, type Cancel, createSeededRandom, type Random, type RouterId, silentMeter } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, type LogLine, type VirtualTime } from "@espalier/testing";
import type { Link } from "../../src/link/link.ts";
import type { MembershipLimits } from "../../src/membership/membership.ts";
import { Membership, type MembershipChange } from "../../src/membership/membership.ts";
import type { Member } from "../../src/replica-ports.ts";
import type { Channel, LinkEnd } from "../../src/wire/link-frames.ts";

/** How long a dial to where nothing answers takes, and how often an address is dialed again. */
const dialTimeoutMs = 1_000;
const redialMs = 900;

interface Change extends MembershipChange {
  readonly atMs: number;
}

/** One router: its membership, and what a process and its sockets do to it. */
export interface Node {
  readonly name: string;
  readonly router: RouterId;
  readonly address: string;
  readonly epoch: number;
  readonly membership: Membership;
  readonly changes: readonly Change[];
  readonly logLines: readonly LogLine[];
  isRunning: boolean;
  lagMs: number;
  /** Its links take no frames: too much waits on them. */
  isChoked: boolean;
  sentBytes: number;
  sentFrames: number;
  /** Names of the routers it sees in a state. */
  seen(state: Member["state"]): string[];
}

interface NodeState extends Node {
  isPaused: boolean;
  readonly backlog: (() => void)[];
  readonly dialed: Map<string, Cancel>;
  readonly ends: Map<string, End>;
}

/** One end of a link. */
interface End extends Link {
  readonly owner: NodeState;
  readonly far: () => End;
  isOpen: boolean;
  /** What this end has sent and the other has not got yet, in order. */
  readonly inFlight: { readonly dueMs: number; deliver(): void }[];
}

export interface Network {
  readonly time: VirtualTime;
  readonly random: Random;
  nodes(): readonly Node[];
  node(name: string): Node;
  add(name: string, options?: { readonly epoch?: number; readonly seeds?: readonly string[] }): Node;
  kill(name: string): void;
  pause(name: string): void;
  resume(name: string): void;
  /** Nothing goes from one to the other; what is sent waits, as TCP would keep it. */
  cut(from: string, to: string): void;
  heal(from: string, to: string): void;
  /** Ends the link between two with a reset at both ends. */
  reset(one: string, other: string): void;
  hasLink(one: string, other: string): boolean;
  run(durationMs: number): void;
}

export interface NetworkOptions {
  readonly seed: number;
  readonly minDelayMs?: number;
  readonly maxDelayMs?: number;
  readonly limits?: Partial<MembershipLimits>;
  /** Routers without an address cannot be dialed. */
  readonly hidden?: readonly string[];
}

/** Routers in one process under virtual time, linked by queues that behave as TCP connections do. */
export function createNetwork(options: NetworkOptions): Network {
  return new SimulatedNetwork(options);
}

class SimulatedNetwork implements Network {
  readonly time = createVirtualTime();
  readonly random: Random;
  readonly #options: NetworkOptions;
  readonly #nodes = new Map<string, NodeState>();
  readonly #cuts = new Set<string>();

  constructor(options: NetworkOptions) {
    this.#options = options;
    this.random = createSeededRandom(options.seed);
  }

  nodes(): readonly Node[] {
    return [...this.#nodes.values()].filter(({ isRunning }) => isRunning);
  }

  node(name: string): NodeState {
    return this.#nodes.get(name)!;
  }

  add(name: string, { epoch = 1, seeds = [] }: { epoch?: number; seeds?: readonly string[] } = {}): Node {
    const router = asRouterId(name);
    const logger = createRecordingLogger();
    const changes: Change[] = [];
    const address = `${name}:7000`;
    const node: NodeState = {
      name,
      router,
      address,
      epoch,
      membership: new Membership({
        self: () => ({ router, epoch }),
        address: () => this.#addressOf(name),
        clock: this.time.clock,
        scheduler: {
          after: (ms, task) => this.#after(node, ms, task),
          every: (ms, task) => this.#every(node, ms, task),
        },
        random: this.random,
        lagMs: () => node.lagMs,
        cpuMs: () => 0,
        dial: (to) => this.#dial(node, to),
        forget: (to) => this.#forget(node, to),
        meter: silentMeter,
        logger,
        limits: this.#options.limits ?? {},
      }),
      changes,
      logLines: logger.lines,
      isRunning: true,
      lagMs: 0,
      isChoked: false,
      sentBytes: 0,
      sentFrames: 0,
      isPaused: false,
      backlog: [],
      dialed: new Map(),
      ends: new Map(),
      seen: (state) =>
        node.membership
          .members()
          .filter((member) => member.state === state)
          .map(({ origin }) => origin.router as string)
          .sort(),
    };
    this.#nodes.set(name, node);
    node.membership.onChange((change) => changes.push({ ...change, atMs: this.time.clock.nowMs() }));
    node.membership.start();
    for (const seed of seeds) this.#dial(node, `${seed}:7000`);
    return node;
  }

  kill(name: string): void {
    const node = this.node(name);
    node.isRunning = false;
    node.membership.stop();
    for (const cancel of node.dialed.values()) cancel();
    for (const end of [...node.ends.values()]) this.#close(end, "stopped", "reset");
  }

  pause(name: string): void {
    this.node(name).isPaused = true;
  }

  resume(name: string): void {
    const node = this.node(name);
    node.isPaused = false;
    for (const task of node.backlog.splice(0)) task();
  }

  cut(from: string, to: string): void {
    this.#cuts.add(`${from}>${to}`);
  }

  heal(from: string, to: string): void {
    this.#cuts.delete(`${from}>${to}`);
    const end = this.node(from).ends.get(to);
    if (end) this.#pump(end);
  }

  reset(one: string, other: string): void {
    const end = this.node(one).ends.get(other);
    if (end) this.#close(end, "reset", "reset");
  }

  hasLink(one: string, other: string): boolean {
    return this.node(one).ends.has(other);
  }

  run(durationMs: number): void {
    this.time.advance(durationMs);
  }

  /** Runs what happens in a process, or keeps it until the process goes on. */
  #inside(node: NodeState, task: () => void): void {
    if (!node.isRunning) return;
    if (node.isPaused) node.backlog.push(() => this.#inside(node, task));
    else task();
  }

  #after(node: NodeState, delayMs: number, task: () => void): Cancel {
    let isCancelled = false;
    const cancel = this.time.scheduler.after(delayMs, () => this.#inside(node, () => isCancelled || task()));
    return () => {
      isCancelled = true;
      cancel();
    };
  }

  #every(node: NodeState, periodMs: number, task: () => void): Cancel {
    let cancel: Cancel = () => {};
    const again = (): void => {
      cancel = this.#after(node, periodMs, () => {
        again();
        task();
      });
    };
    again();
    return () => cancel();
  }

  #addressOf(name: string): string | undefined {
    return this.#options.hidden?.includes(name) ? undefined : `${name}:7000`;
  }

  #delayMs(): number {
    const { minDelayMs = 1, maxDelayMs = 5 } = this.#options;
    return minDelayMs + this.random.float() * (maxDelayMs - minDelayMs);
  }

  #isCut(from: string, to: string): boolean {
    return this.#cuts.has(`${from}>${to}`);
  }

  #forget(node: NodeState, address: string): void {
    node.dialed.get(address)?.();
    node.dialed.delete(address);
  }

  /** Dials at once and again and again, as long as there is no link. */
  #dial(node: NodeState, address: string): void {
    this.#forget(node, address);
    const to = address.split(":")[0]!;
    const attempt = (): void => {
      const again = this.#after(node, redialMs + this.random.float() * 200, attempt);
      node.dialed.set(address, again);
      if (node.ends.has(to)) return;
      const target = this.#nodes.get(to);
      const isDeaf = this.#isCut(node.name, to) || this.#isCut(to, node.name) || target?.isPaused;
      if (isDeaf) {
        this.#after(node, dialTimeoutMs, () => node.membership.dialFailed(address, { kind: "timeout" }));
      } else if (!target?.isRunning) {
        this.#after(node, this.#delayMs(), () => node.membership.dialFailed(address, { kind: "refused" }));
      } else if (target === node) {
        const why = { kind: "rejected", reason: "self", detail: "" } as const;
        this.#after(node, this.#delayMs(), () => node.membership.dialFailed(address, why));
      } else {
        this.#after(node, this.#delayMs(), () => this.#connect(node, target));
      }
    };
    node.dialed.set(
      address,
      this.#after(node, 0, () => attempt()),
    );
  }

  #connect(from: NodeState, to: NodeState): void {
    if (!to.isRunning || to.isPaused || this.#nodes.get(to.name) !== to) return;
    if (from.ends.has(to.name) && to.ends.get(from.name)?.far().isOpen) return;
    for (const stale of [from.ends.get(to.name), to.ends.get(from.name)]) {
      if (stale) this.#close(stale, "replaced", "replaced");
    }
    const near = this.#end(from, to, () => far);
    const far: End = this.#end(to, from, () => near);
    from.ends.set(to.name, near);
    to.ends.set(from.name, far);
    to.membership.linkUp(far);
    this.#after(from, this.#delayMs(), () => near.isOpen && from.membership.linkUp(near));
  }

  #end(owner: NodeState, other: NodeState, far: () => End): End {
    const end: End = {
      owner,
      far,
      isOpen: true,
      inFlight: [],
      peer: { origin: { router: other.router, epoch: other.epoch }, address: this.#addressOf(other.name), version: 1 },
      send: (channel, frame) => this.#send(end, channel, frame),
      bufferedBytes: 0,
      waitingBytes: () => 0,
      roundTripMs: Number.NaN,
      stats: { sentBytes: 0, receivedBytes: 0, sentFrames: 0, receivedFrames: 0, droppedFrames: 0, lastHeardMs: 0 },
      close: (why) => this.#close(end, why, "reset"),
    };
    return end;
  }

  #send(end: End, channel: Channel, frame: Uint8Array): boolean {
    if (!end.isOpen || end.owner.isChoked) return false;
    if (channel !== "membership") throw new Error(`a frame on channel ${channel}`);
    end.stats.sentBytes += frame.length;
    end.owner.sentBytes += frame.length;
    end.owner.sentFrames += 1;
    const copy = frame.slice();
    this.#queue(end, () => {
      const far = end.far();
      this.#inside(far.owner, () => far.isOpen && far.owner.membership.receive(far, copy));
    });
    return true;
  }

  #queue(end: End, deliver: () => void): void {
    const lastMs = end.inFlight.at(-1)?.dueMs ?? 0;
    const dueMs = Math.max(lastMs, this.time.clock.nowMs() + this.#delayMs());
    end.inFlight.push({ dueMs, deliver });
    this.time.scheduler.after(dueMs - this.time.clock.nowMs(), () => this.#pump(end));
  }

  #pump(end: End): void {
    if (this.#isCut(end.owner.name, end.far().owner.name)) return;
    const nowMs = this.time.clock.nowMs();
    while (end.inFlight.length > 0 && end.inFlight[0]!.dueMs <= nowMs + 1e-6) end.inFlight.shift()!.deliver();
  }

  /** Ends one end now; the other end learns of it when the news gets through. */
  #close(end: End, why: LinkEnd, farWhy: LinkEnd): void {
    if (!end.isOpen) return;
    end.isOpen = false;
    const { owner } = end;
    const far = end.far();
    if (owner.ends.get(far.owner.name) === end) owner.ends.delete(far.owner.name);
    this.#inside(owner, () => owner.membership.linkDown(end, why));
    this.#queue(end, () => this.#inside(far.owner, () => this.#close(far, farWhy, farWhy)));
  }
}

/** Names `a`, `b`, ... */
export function namesOf(count: number): string[] {
  return Array.from({ length: count }, (_, index) => String.fromCharCode(97 + index));
}

/** A network whose routers have found each other by the first one. */
export function createMesh(count: number, options: NetworkOptions): Network {
  const network = createNetwork(options);
  const names = namesOf(count);
  for (const name of names) network.add(name, { seeds: names.slice(0, 1).filter((seed) => seed !== name) });
  network.run(2_000);
  return network;
}
