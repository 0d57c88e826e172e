import { asRouterId } from "@espalier/core";
import type { Origin } from "@espalier/mesh";
import { type EngineEpoch, epochId } from "../../src/facts/engine-epoch.ts";
import type { CheckpointEntry, FactEntry, FactRecord } from "../../src/facts/fact-item.ts";
import { createFoldHarness, type FoldHarness, target } from "./fold-harness.ts";
import { type Forest, ModelLedger, type ModelMessage } from "./model-engine.ts";

/** A journal whose settled entries are gone for those who have not read them. */
export interface ModelJournal {
  readonly epochs: EngineEpoch[];
  readonly entries: (FactEntry | undefined)[];
}

/** A router that folds, and may read the engine, own its feed, and state checkpoints. */
export class ModelRouter {
  readonly origin: Origin;
  readonly harness: FoldHarness;
  readonly journal: ModelJournal = { epochs: [], entries: [] };
  /** How far it has read the journals of others, by router. */
  readonly read = new Map<ModelRouter, { epochs: number; entries: number }>();
  isOwner = false;
  isAlive = true;
  /** Messages that it does not get to see yet. */
  pausedFor = 0;
  /** Snapshots in a row that did not bring what it lacks. */
  fruitless = 0;
  ledger: ModelLedger;
  isComplete = false;
  readonly #forest: Forest;
  readonly #engineEpochs: Map<string, number>;
  /** Its own records of the epoch that it reads, and whether the epoch has been given a name. */
  #records = new Map<number, FactRecord>();
  #latest = -1;
  #engineEpoch = -1;
  #epoch: EngineEpoch | undefined;
  /** Whether it has stated a checkpoint of what it knew from before the message that names the epoch. */
  #isFounded = false;

  /** @param engineEpochs the engine's epochs by the ids that routers gave them, which no real router could know */
  constructor(name: string, forest: Forest, engineEpochs: Map<string, number>) {
    this.#engineEpochs = engineEpochs;
    this.origin = { router: asRouterId(name), epoch: 1 };
    this.harness = createFoldHarness({ declared: [], self: this.origin.router });
    this.#forest = forest;
    this.ledger = new ModelLedger(forest);
  }

  /** Takes a message of the engine. Whoever owns the feed writes down what it did. */
  take(message: ModelMessage): void {
    if (message.epoch !== this.#engineEpoch) this.#begin(message);
    const isGap = message.sequence > this.#latest + 1 && this.#latest >= 0;
    if (isGap) this.isComplete = false;
    const { sequence, timestampUs, checksum } = message;
    const ops = this.ledger.apply(message);
    const { isComplete } = this;
    const record: FactRecord = { kind: "record", feed: 0, sequence, timestampUs, checksum, isComplete, ops };
    this.#records.set(sequence, record);
    const missed = this.#latest + 1;
    this.#latest = sequence;
    if (!this.isOwner) return;
    const feed = this.#feed();
    if (this.#knowsEarlier && this.isComplete && !this.harness.fold.state(target)?.isComplete) {
      this.replace();
      return;
    }
    if (isGap) this.#write({ kind: "gap", feed, from: missed, to: sequence - 1 });
    this.#write({ ...record, feed });
  }

  /** Becomes the owner of the feed: writes what the fold lacks, or states what it knows itself. */
  takeOver(): void {
    this.isOwner = true;
    if (this.#latest < 0) return;
    const feed = this.#feed();
    const state = this.harness.fold.state(target)!;
    if (state.epoch === undefined || epochId(state.epoch) !== epochId(this.#epoch!)) return;
    const knowsBetter = this.isComplete && (!state.isComplete || state.progress !== "current");
    const from = knowsBetter ? this.#epoch!.sequence : (state.last?.sequence ?? this.#epoch!.sequence - 1) + 1;
    const missing = knowsBetter && this.#knowsEarlier ? undefined : this.#contiguousFrom(from);
    if (missing && state.progress !== "loading") for (const record of missing) this.#write({ ...record, feed });
    else if (knowsBetter || (state.last?.sequence ?? -1) < this.#latest) this.replace();
  }

  /** States what its own ledger knows, whatever the records lead to. */
  replace(): boolean {
    const mark = this.#records.get(this.#latest);
    if (!mark || !this.#epoch) return false;
    const { isComplete } = this;
    const tellAll = (sink: Parameters<ModelLedger["tellAll"]>[0]): void => this.ledger.tellAll(sink);
    this.#feed();
    this.#isFounded = true;
    return (
      this.harness.fold.replaceState({ target, epoch: this.#epoch, mark, isComplete, tellAll }) &&
      this.checkpoint() !== undefined
    );
  }

  /** Writes a checkpoint, after which older entries are not needed any more. */
  checkpoint(): CheckpointEntry | undefined {
    if (!this.#epoch) return undefined;
    const statement = this.harness.fold.checkpointStatement(target);
    const last = this.harness.fold.state(target)?.last;
    if (!statement || !last || statement.epoch !== epochId(this.#epoch)) return undefined;
    const { blocks, digest, isComplete } = statement;
    const checkpoint: CheckpointEntry = { kind: "checkpoint", feed: this.#feed(), ...last, isComplete, blocks, digest };
    this.#write(checkpoint);
    this.settle(statement.epoch, checkpoint.sequence, checkpoint);
    return checkpoint;
  }

  /** Entries of an epoch up to a sequence are gone from the journal. */
  settle(epoch: string, sequence: number, except?: FactEntry): void {
    const { entries, epochs } = this.journal;
    for (const [at, entry] of entries.entries()) {
      if (!entry || entry === except || epochId(epochs[entry.feed]!) !== epoch) continue;
      const end = entry.kind === "gap" ? entry.to : entry.sequence;
      if (end <= sequence && (entry.kind !== "checkpoint" || except)) entries[at] = undefined;
    }
  }

  /** Reads the next entries of another router's journal. */
  readFrom(other: ModelRouter, count: number): void {
    const at = this.read.get(other) ?? { epochs: 0, entries: 0 };
    const { fold } = this.harness;
    const { epochs, entries } = other.journal;
    for (; at.epochs < epochs.length; at.epochs++) {
      fold.declare(other.origin, at.epochs, { target, epoch: epochs[at.epochs]! });
    }
    const next = entries.slice(at.entries, at.entries + count).filter((entry) => entry !== undefined);
    at.entries = Math.min(entries.length, at.entries + count);
    this.read.set(other, at);
    fold.apply(other.origin, next);
    for (const entry of next)
      if (entry.kind === "checkpoint") this.settle(epochId(epochs[entry.feed]!), entry.sequence);
  }

  hasReadAllOf(other: ModelRouter): boolean {
    return (this.read.get(other)?.entries ?? 0) === other.journal.entries.length;
  }

  /** Whether it has read messages from before the one that the epoch is named by, which no record can tell of. */
  get #knowsEarlier(): boolean {
    return this.#epoch !== undefined && this.#records.keys().next().value! < this.#epoch.sequence;
  }

  #begin(message: ModelMessage): void {
    this.#engineEpoch = message.epoch;
    this.ledger = new ModelLedger(this.#forest);
    this.#records = new Map();
    this.#latest = -1;
    this.#epoch = undefined;
    this.#isFounded = false;
    this.isComplete = message.sequence === 0;
  }

  /** The number of the feed of the epoch that it reads, which it names if nobody has. */
  #feed(): number {
    const known = this.harness.fold.state(target)?.epoch;
    const isKnown = known !== undefined && this.#records.get(known.sequence)?.checksum === known.checksum;
    if (isKnown) this.#epoch = known;
    else if (!this.#epoch || (epochId(this.#epoch) !== (known && epochId(known)) && this.#isMisnamed(known))) {
      // A name that others have superseded is no use any more.
      const naming = this.#epoch ? this.#records.get(this.#latest)! : this.#records.values().next().value!;
      const { sequence, timestampUs, checksum } = naming;
      this.#epoch = { sequence, timestampUs, checksum, predecessor: known ? epochId(known) : null };
      this.#engineEpochs.set(epochId(this.#epoch), this.#engineEpoch);
    }
    const id = epochId(this.#epoch!);
    const number = this.journal.epochs.findIndex((epoch) => epochId(epoch) === id);
    if (number >= 0) return number;
    this.journal.epochs.push(this.#epoch!);
    this.harness.fold.declare(this.origin, this.journal.epochs.length - 1, { target, epoch: this.#epoch! });
    return this.journal.epochs.length - 1;
  }

  /** Whether what others take for the newest epoch is the one that it reads, by a message that it missed, or one before. */
  #isMisnamed(known: EngineEpoch | undefined): boolean {
    return known !== undefined && this.#engineEpochs.get(epochId(known))! <= this.#engineEpoch;
  }

  /** Its records from a sequence to the latest; undefined when one is missing. */
  #contiguousFrom(from: number): FactRecord[] | undefined {
    const found: FactRecord[] = [];
    for (let sequence = from; sequence <= this.#latest; sequence++) {
      const record = this.#records.get(sequence);
      if (!record) return undefined;
      found.push(record);
    }
    return found;
  }

  #write(written: FactEntry): void {
    // A record is complete where everything since the message that names the epoch leads to it, and nothing came before.
    const isUnfounded = written.kind === "record" && this.#knowsEarlier && !this.#isFounded;
    const entry = isUnfounded ? { ...written, isComplete: false } : written;
    this.journal.entries.push(entry);
    this.harness.fold.apply(this.origin, [entry]);
  }
}
