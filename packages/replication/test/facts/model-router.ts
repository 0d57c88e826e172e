import { asRouterId } from "@espalier/common";
import type { CheckpointEntry, FactEntry, FactRecord } from "../../src/facts/fact-item.ts";
import { type Life, lifeId } from "../../src/facts/life.ts";
import type { Origin } from "../../src/origin.ts";
import { createFoldHarness, type FoldHarness, target } from "./fold-harness.ts";
import { type Forest, ModelLedger, type ModelMessage } from "./model-engine.ts";

/** A journal whose settled entries are gone for those who have not read them. */
export interface ModelJournal {
  readonly lives: Life[];
  readonly entries: (FactEntry | undefined)[];
}

/** A router that folds, and may read the engine, own its feed, and state cuts. */
export class ModelRouter {
  readonly origin: Origin;
  readonly harness: FoldHarness;
  readonly journal: ModelJournal = { lives: [], entries: [] };
  /** How far it has read the journals of others, by router. */
  readonly read = new Map<ModelRouter, { lives: number; entries: number }>();
  isOwner = false;
  isAlive = true;
  /** Messages that it does not get to see yet. */
  pausedFor = 0;
  /** Snapshots in a row that did not bring what it lacks. */
  fruitless = 0;
  ledger: ModelLedger;
  isComplete = false;
  readonly #forest: Forest;
  readonly #engineLives: Map<string, number>;
  /** Its own records of the life that it reads, and whether the life has been given a name. */
  #records = new Map<number, FactRecord>();
  #latest = -1;
  #engineLife = -1;
  #life: Life | undefined;
  /** Whether it has stated a cut of what it knew from before the message that names the life. */
  #isFounded = false;

  /** @param engineLives the engine's lives by the ids that routers gave them, which no real router could know */
  constructor(name: string, forest: Forest, engineLives: Map<string, number>) {
    this.#engineLives = engineLives;
    this.origin = { router: asRouterId(name), epoch: 1 };
    this.harness = createFoldHarness({ declared: [], self: this.origin.router });
    this.#forest = forest;
    this.ledger = new ModelLedger(forest);
  }

  /** Takes a message of the engine. Whoever owns the feed writes down what it did. */
  take(message: ModelMessage): void {
    if (message.life !== this.#engineLife) this.#begin(message);
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
    if (state.life === undefined || lifeId(state.life) !== lifeId(this.#life!)) return;
    const knowsBetter = this.isComplete && (!state.isComplete || state.progress !== "current");
    const from = knowsBetter ? this.#life!.sequence : (state.last?.sequence ?? this.#life!.sequence - 1) + 1;
    const missing = knowsBetter && this.#knowsEarlier ? undefined : this.#contiguousFrom(from);
    if (missing && state.progress !== "loading") for (const record of missing) this.#write({ ...record, feed });
    else if (knowsBetter || (state.last?.sequence ?? -1) < this.#latest) this.replace();
  }

  /** States what its own ledger knows, whatever the records lead to. */
  replace(): boolean {
    const mark = this.#records.get(this.#latest);
    if (!mark || !this.#life) return false;
    const { isComplete } = this;
    const tellAll = (sink: Parameters<ModelLedger["tellAll"]>[0]): void => this.ledger.tellAll(sink);
    this.#feed();
    this.#isFounded = true;
    return (
      this.harness.fold.replaceState({ target, life: this.#life, mark, isComplete, tellAll }) &&
      this.cut() !== undefined
    );
  }

  /** Writes a cut, after which older entries are not needed any more. */
  cut(): CheckpointEntry | undefined {
    if (!this.#life) return undefined;
    const statement = this.harness.fold.checkpointStatement(target);
    const last = this.harness.fold.state(target)?.last;
    if (!statement || !last || statement.life !== lifeId(this.#life)) return undefined;
    const { blocks, digest, isComplete } = statement;
    const cut: CheckpointEntry = { kind: "checkpoint", feed: this.#feed(), ...last, isComplete, blocks, digest };
    this.#write(cut);
    this.settle(statement.life, cut.sequence, cut);
    return cut;
  }

  /** Entries of a life up to a sequence are gone from the journal. */
  settle(life: string, sequence: number, except?: FactEntry): void {
    const { entries, lives } = this.journal;
    for (const [at, entry] of entries.entries()) {
      if (!entry || entry === except || lifeId(lives[entry.feed]!) !== life) continue;
      const end = entry.kind === "gap" ? entry.to : entry.sequence;
      if (end <= sequence && (entry.kind !== "checkpoint" || except)) entries[at] = undefined;
    }
  }

  /** Reads the next entries of another router's journal. */
  readFrom(other: ModelRouter, count: number): void {
    const at = this.read.get(other) ?? { lives: 0, entries: 0 };
    const { fold } = this.harness;
    const { lives, entries } = other.journal;
    for (; at.lives < lives.length; at.lives++) {
      fold.declare(other.origin, at.lives, { target, life: lives[at.lives]! });
    }
    const next = entries.slice(at.entries, at.entries + count).filter((entry) => entry !== undefined);
    at.entries = Math.min(entries.length, at.entries + count);
    this.read.set(other, at);
    fold.apply(other.origin, next);
    for (const entry of next) if (entry.kind === "checkpoint") this.settle(lifeId(lives[entry.feed]!), entry.sequence);
  }

  hasReadAllOf(other: ModelRouter): boolean {
    return (this.read.get(other)?.entries ?? 0) === other.journal.entries.length;
  }

  /** Whether it has read messages from before the one that the life is named by, which no record can tell of. */
  get #knowsEarlier(): boolean {
    return this.#life !== undefined && this.#records.keys().next().value! < this.#life.sequence;
  }

  #begin(message: ModelMessage): void {
    this.#engineLife = message.life;
    this.ledger = new ModelLedger(this.#forest);
    this.#records = new Map();
    this.#latest = -1;
    this.#life = undefined;
    this.#isFounded = false;
    this.isComplete = message.sequence === 0;
  }

  /** The number of the feed of the life that it reads, which it names if nobody has. */
  #feed(): number {
    const known = this.harness.fold.state(target)?.life;
    const isKnown = known !== undefined && this.#records.get(known.sequence)?.checksum === known.checksum;
    if (isKnown) this.#life = known;
    else if (!this.#life || (lifeId(this.#life) !== (known && lifeId(known)) && this.#isMisnamed(known))) {
      // A name that others have superseded is no use any more.
      const naming = this.#life ? this.#records.get(this.#latest)! : this.#records.values().next().value!;
      const { sequence, timestampUs, checksum } = naming;
      this.#life = { sequence, timestampUs, checksum, predecessor: known ? lifeId(known) : null };
      this.#engineLives.set(lifeId(this.#life), this.#engineLife);
    }
    const id = lifeId(this.#life!);
    const number = this.journal.lives.findIndex((life) => lifeId(life) === id);
    if (number >= 0) return number;
    this.journal.lives.push(this.#life!);
    this.harness.fold.declare(this.origin, this.journal.lives.length - 1, { target, life: this.#life! });
    return this.journal.lives.length - 1;
  }

  /** Whether what others take for the newest life is the one that it reads, by a message that it missed, or one before. */
  #isMisnamed(known: Life | undefined): boolean {
    return known !== undefined && this.#engineLives.get(lifeId(known))! <= this.#engineLife;
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
    // A record is complete where everything since the message that names the life leads to it, and nothing came before.
    const isUnfounded = written.kind === "record" && this.#knowsEarlier && !this.#isFounded;
    const entry = isUnfounded ? { ...written, isComplete: false } : written;
    this.journal.entries.push(entry);
    this.harness.fold.apply(this.origin, [entry]);
  }
}
