import type { Scheduler } from "@espalier/core";
import { type LedgerSink, tier } from "@espalier/prefix-index";
import type { EventReading, FeedCondition, FeedOutput } from "../../src/feeds/feed-host.ts";

/** How long after its start a reading is connected and has been told everything so far. */
export const connectMs = 10;

const connecting: FeedCondition = {
  quality: "void",
  state: "connecting",
  reason: "connecting",
  unusable: undefined,
};
const lost: FeedCondition = { quality: "void", state: "stale", reason: "socket-lost", unusable: undefined };
const stopped: FeedCondition = { quality: "none", state: "off", reason: "stopped", unusable: undefined };
const live: FeedCondition = { quality: "complete", state: "live", reason: "complete", unusable: undefined };

type Message = (sink: LedgerSink) => void;

/** An engine whose events may be read by many; each reading is told its present epoch from the beginning. */
export class ScriptedEngine {
  readonly key: string;
  readonly #scheduler: Scheduler;
  readonly #readings = new Set<ScriptedReading>();
  /** What it said in the present epoch. */
  #messages: Message[] = [];
  #epoch = 1;
  #isUp = true;
  /** Readings that this says no to are never connected. */
  isReachedBy: (reader: string) => boolean = () => true;

  constructor(key: string, scheduler: Scheduler) {
    this.key = key;
    this.#scheduler = scheduler;
  }

  /** Who reads it now, in alphabetical order. */
  get readers(): readonly string[] {
    return [...this.#readings].map(({ reader }) => reader).sort();
  }

  /** Where a host begins to read it. @param reader a name for `readers` */
  readBy(reader: string): (output: FeedOutput) => EventReading {
    return (output) => new ScriptedReading(this, reader, output);
  }

  /** Says that it holds all blocks of a chain. */
  store(chain: Uint32Array): void {
    this.#say((sink) => sink.stored(tier.gpu, chain, 0, chain.length / 2));
  }

  /** Says that it dropped the blocks of a chain from `from` on, and that it holds those of another one. */
  replace(chain: Uint32Array, from: number, by: Uint32Array): void {
    this.#say((sink) => {
      sink.removed(tier.gpu, chain, from, chain.length / 2);
      sink.stored(tier.gpu, by, 0, by.length / 2);
    });
  }

  /** Says that its cache is empty. */
  clear(): void {
    this.#say((sink) => sink.cleared());
  }

  #say(message: Message): void {
    const sequence = this.#messages.push(message) - 1;
    for (const reading of this.#connected()) this.#tell(reading, sequence);
  }

  /** Becomes another process, whose cache is empty. */
  restart(): void {
    this.#messages = [];
    this.#epoch += 1;
    for (const { output } of this.#connected()) output.newEpoch();
  }

  /** Its process ends. @returns those that read it */
  end(): readonly ScriptedReading[] {
    this.#isUp = false;
    const before = this.#connected();
    for (const reading of before) {
      reading.isConnected = false;
      reading.output.condition(lost);
    }
    return before;
  }

  /** Its process ends, and another one comes up later. */
  restartAfter(downMs: number): void {
    const before = this.end();
    this.#scheduler.after(downMs, () => {
      this.#isUp = true;
      this.#messages = [];
      this.#epoch += 1;
      for (const reading of before) if (this.#readings.has(reading)) reading.output.newEpoch();
      for (const reading of this.#readings) this.#connect(reading);
    });
  }

  /** A message gets lost on its way to those who read now. */
  lose(chain: Uint32Array): void {
    const sequence = this.#messages.push((sink) => sink.stored(tier.gpu, chain, 0, chain.length / 2)) - 1;
    for (const { output } of this.#connected()) {
      output.gap(sequence, sequence);
      output.condition({ ...live, quality: "partial", state: "partial", reason: "gap" });
    }
  }

  opened(reading: ScriptedReading): void {
    this.#readings.add(reading);
    reading.output.condition(connecting);
    this.#connect(reading);
  }

  #connect(reading: ScriptedReading): void {
    if (!this.isReachedBy(reading.reader)) return;
    this.#scheduler.after(connectMs, () => {
      if (!this.#readings.has(reading) || !this.#isUp || reading.isConnected) return;
      reading.isConnected = true;
      for (const sequence of this.#messages.keys()) this.#tell(reading, sequence);
      reading.output.condition(live);
    });
  }

  closed(reading: ScriptedReading): void {
    if (this.#readings.delete(reading)) reading.output.condition(stopped);
  }

  tellAll(sink: LedgerSink): void {
    for (const message of this.#messages) message(sink);
  }

  #connected(): readonly ScriptedReading[] {
    return [...this.#readings].filter(({ isConnected }) => isConnected);
  }

  #tell({ output }: ScriptedReading, sequence: number): void {
    this.#messages[sequence]!(output.sink);
    const timestampUs = 1_000_000_000 * this.#epoch + sequence;
    output.batch({ sequence, timestampUs, checksum: timestampUs % 65_521 }, { isComplete: true, unknownRemovals: 0 });
  }
}

class ScriptedReading implements EventReading {
  readonly reader: string;
  readonly output: FeedOutput;
  isConnected = false;
  attached = 0;
  readonly #engine: ScriptedEngine;

  constructor(engine: ScriptedEngine, reader: string, output: FeedOutput) {
    this.#engine = engine;
    this.reader = reader;
    this.output = output;
  }

  get quality() {
    return this.isConnected ? live.quality : connecting.quality;
  }

  async start(): Promise<void> {
    this.#engine.opened(this);
  }

  async stop(): Promise<void> {
    this.#engine.closed(this);
  }

  attach(): void {
    this.attached += 1;
  }

  tellAll(sink: LedgerSink): void {
    this.#engine.tellAll(sink);
  }

  describe() {
    const { state, reason } = this.isConnected ? live : connecting;
    return {
      ...{ target: this.#engine.key, state, reason, role: null, owner: null, unusable: null },
      floatingBlocks: this.attached,
      blocks: { gpu: -1, cpu: -1, disk: -1, external: -1 },
    };
  }
}

/** A chain of so many blocks that no other seed has. */
export function chainOf(seed: number, blocks: number): Uint32Array {
  return Uint32Array.from({ length: 2 * blocks }, (_, at) => Math.imul(seed * 65_537 + at + 1, 0x9e37_79b1));
}
