import { type Cancel, type Clock, counterBy, type Meter } from "@espalier/core";
import { type HybridClock, type Origin, stampMs } from "@espalier/mesh";
import type { Doc } from "yjs";
import { GenerationDocument, NextGenerations, readGenerationName } from "./generation-document.ts";
import {
  canonicalJson,
  isLaterEntry,
  isSameEntry,
  jsonBytes,
  maxRegistryEntries,
  maxRegistryValueBytes,
  type RegistryEntry,
  type RegistryKind,
  type RegistryName,
  type RegistryValue,
  RegistryView,
  readRegistryKey,
  registryKey,
  tombstoneMs,
} from "./registry-entry.ts";

/** With more writers in its document than this, most of them dead, the registry moves to another one. */
export const maxRegistryClients = 256;
/** Yjs structs beyond four per entry that a document may have before the registry moves to another one. */
const spareStructs = 1_024;
/** Clocks of routers differ, so one may forget a removed entry a little before the others. */
const tombstoneSlackMs = 3_600_000;
const expiryPeriodMs = 600_000;

export interface RegistryOptions {
  /** This epoch of this router. */
  readonly self: () => Origin;
  readonly clock: Clock;
  readonly hlc: HybridClock;
  readonly meter: Meter;
}

/** What one source says of one engine. */
export interface RegisteredEngine {
  readonly engine: string;
  readonly source: string;
  readonly value: RegistryValue;
}

/** A document of the registry to carry to others from now on, or not any more. */
export interface RegistryDocument {
  readonly name: string;
  readonly doc: Doc;
  readonly isOpen: boolean;
}

export interface RegistryDescription {
  readonly generation: number;
  readonly entries: number;
  /** Writers that the document remembers. */
  readonly clients: number;
  readonly structs: number;
  /** Entries that found or left no place among those of their kind; without kinds that lost none. */
  readonly dropped: readonly { readonly kind: RegistryKind; readonly count: number }[];
}

/**
 * Seldom changing state that all routers agree on: engines by source, and the operators' drain flags. Of every key the
 * entry with the latest stamp wins. It is one Yjs document with many writers, `registry/<generation>`. The routers move
 * to the next generation together, so that dead writers cost nothing.
 */
export class Registry {
  readonly #options: RegistryOptions;
  readonly #view: RegistryView;
  readonly #dropped = new Map<RegistryKind, number>();
  readonly #changeListeners = new Set<(name: RegistryName) => void>();
  readonly #documentListeners = new Set<(document: RegistryDocument) => void>();
  #current: GenerationDocument;
  readonly #next = new NextGenerations();
  #expiredMs = Number.NEGATIVE_INFINITY;

  constructor(options: RegistryOptions) {
    this.#options = options;
    const dropped = counterBy<RegistryKind>(
      options.meter,
      "kind",
      "espalier_registry_dropped_total",
      "Operator engines and drain flags dropped from the registry at its limit.",
    );
    this.#view = new RegistryView((kind) => {
      dropped(kind);
      this.#dropped.set(kind, (this.#dropped.get(kind) ?? 0) + 1);
    });
    this.#current = this.#begin(1);
  }

  get name(): string {
    return this.#current.name;
  }

  get doc(): Doc {
    return this.#current.doc;
  }

  /** The present document, and later ones while they are incomplete. */
  documents(): readonly RegistryDocument[] {
    return [this.#current, ...this.#next.all()].map(({ name, doc }) => ({ name, doc, isOpen: true }));
  }

  onDocument(listener: (document: RegistryDocument) => void): Cancel {
    this.#documentListeners.add(listener);
    return () => this.#documentListeners.delete(listener);
  }

  /**
   * A peer has a document of this name.
   *
   * @returns the document for it; undefined for a generation that was left behind, and for other names
   */
  open(name: string): Doc | undefined {
    const generation = readGenerationName(name);
    if (generation === undefined) return undefined;
    if (generation === this.#current.generation) return this.#current.doc;
    if (generation < this.#current.generation) return undefined;
    if (this.#next.isTooLow(generation)) return undefined;
    return (this.#next.get(generation) ?? this.#await(generation)).doc;
  }

  /** @throws RangeError for a value over 2,048 bytes of JSON, names over 255 characters, and beyond 16,384 engines */
  putEngine(engine: string, source: string, value: RegistryValue): void {
    if (jsonBytes(value) > maxRegistryValueBytes) throw new RangeError(`registry entry too large for engine ${engine}`);
    this.#write("engine", engine, source, value);
  }

  removeEngine(engine: string, source: string): void {
    this.#write("engine", engine, source, null);
  }

  engines(): readonly RegisteredEngine[] {
    const engines: RegisteredEngine[] = [];
    for (const [key, { value }] of this.#view.entries()) {
      const name = readRegistryKey(key)!;
      if (name.kind === "engine" && value) engines.push({ engine: name.engine, source: name.source, value });
    }
    return engines.sort((one, other) => compare(one.engine, other.engine) || compare(one.source, other.source));
  }

  /** @param isDraining undefined: no operator says anything about it any more */
  setDraining(engine: string, isDraining: boolean | undefined): void {
    this.#write("drain", engine, "", isDraining === undefined ? null : { isDraining });
  }

  drainingOf(engine: string): boolean | undefined {
    const value = this.#view.get(registryKey("drain", engine, ""))?.value;
    return value ? value.isDraining === true : undefined;
  }

  /** Calls the listener with what has changed, here or elsewhere. */
  onChange(listener: (name: RegistryName) => void): Cancel {
    this.#changeListeners.add(listener);
    return () => this.#changeListeners.delete(listener);
  }

  /** Forgets entries that were removed long ago. Cheap to call often. */
  expire(): void {
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - this.#expiredMs < expiryPeriodMs) return;
    this.#expiredMs = nowMs;
    const keys = [...this.#view.entries()].flatMap(([key, entry]) => (this.#isForgotten(entry, 0) ? [key] : []));
    for (const key of keys) this.#view.forget(key);
    this.#current.delete(keys);
  }

  /** Whether the document holds much more of the past than of the present. */
  get needsRotation(): boolean {
    const { clients, structs } = this.#current;
    return clients > maxRegistryClients || structs > 4 * this.#view.size + spareStructs;
  }

  /** Begins the next generation. Only one router at a time may call it: others move when they see it. */
  rotate(): void {
    const next = this.#await(1 + Math.max(...this.documents().map(({ name }) => readGenerationName(name) ?? 0)));
    next.begin([...this.#view.entries()].filter(([, entry]) => !this.#isForgotten(entry, 0)));
    this.#move(next);
  }

  describe(): RegistryDescription {
    const { generation, clients, structs } = this.#current;
    const dropped = Array.from(this.#dropped, ([kind, count]) => ({ kind, count }));
    return { generation, clients, structs, entries: this.#view.size, dropped };
  }

  #write(kind: RegistryKind, engine: string, source: string, value: RegistryValue | null): void {
    const key = registryKey(kind, engine, source);
    const known = this.#view.get(key);
    if (known ? canonicalJson(known.value) === canonicalJson(value) : value === null) return;
    // A later drain flag takes the place of the earliest: an engine that an operator drains now is always told.
    if (!known && kind === "engine" && this.#view.isFull(kind)) {
      throw new RangeError(
        `registry limit reached: ${maxRegistryEntries} engines, including those removed in the last day`,
      );
    }
    const { self, hlc } = this.#options;
    // Later than what it replaces, even if that was written by a router whose clock is ahead.
    const stamp = Math.max(hlc.now(), (known?.stamp ?? 0) + 1);
    const entry: RegistryEntry = { stamp, router: self().router, value: copyOf(value) };
    const [, ...gone] = this.#view.put(key, entry);
    this.#current.set([[key, entry]]);
    this.#current.delete(gone);
    for (const changed of [key, ...gone]) this.#changed(changed);
  }

  #begin(generation: number): GenerationDocument {
    const document = new GenerationDocument(generation, this.#options.self());
    document.onRemoteChange((keys) => this.#remoteChange(document, keys));
    return document;
  }

  #await(generation: number): GenerationDocument {
    const document = this.#begin(generation);
    const given = this.#next.add(document);
    this.#tell(document, true);
    if (given) this.#close(given);
    return document;
  }

  #remoteChange(document: GenerationDocument, keys: Iterable<string>): void {
    const changed = this.#learn(document, keys);
    if (this.#next.has(document) && document.isComplete) this.#move(document);
    // An entry in a generation that is still incomplete is repeated in the present one.
    else this.#repair(this.#current, keys);
    for (const key of changed) this.#changed(key);
  }

  /** @returns the keys for which the document had something later */
  #learn(document: GenerationDocument, keys: Iterable<string>): string[] {
    const changed: string[] = [];
    for (const key of keys) {
      const entry = readRegistryKey(key) && document.get(key);
      if (!entry) continue;
      this.#options.hlc.observe(entry.stamp);
      changed.push(...this.#view.put(key, entry));
    }
    return changed;
  }

  /**
   * Yjs settles concurrent writes of a key by its own order. Where that is not the order of stamps, the latest is
   * written again.
   */
  #repair(document: GenerationDocument, keys: Iterable<string>): void {
    const repairs: [string, RegistryEntry][] = [];
    for (const key of keys) {
      const latest = this.#view.get(key);
      if (!latest) continue;
      const found = document.get(key);
      if (found && (isSameEntry(found, latest) || isLaterEntry(found, latest))) continue;
      if (!found && this.#isForgotten(latest, tombstoneSlackMs)) this.#view.forget(key);
      else repairs.push([key, latest]);
    }
    document.set(repairs);
  }

  /** Moves to a complete generation, and writes there what it lacks. */
  #move(next: GenerationDocument): void {
    const left = this.#current;
    this.#current = next;
    const keys = [...this.#view.entries()].map(([key]) => key);
    this.#repair(next, keys);
    for (const document of this.#next.takeUpTo(next.generation)) if (document !== next) this.#close(document);
    this.#close(left);
  }

  #close(document: GenerationDocument): void {
    this.#tell(document, false);
    document.destroy();
  }

  /** Whether an entry was removed so long ago that no router needs the tombstone. */
  #isForgotten({ value, stamp }: RegistryEntry, slackMs: number): boolean {
    return value === null && this.#options.clock.wallMs() - stampMs(stamp) > tombstoneMs - slackMs;
  }

  #tell({ name, doc }: GenerationDocument, isOpen: boolean): void {
    for (const listener of this.#documentListeners) listener({ name, doc, isOpen });
  }

  #changed(key: string): void {
    const name = readRegistryKey(key);
    if (name) for (const listener of this.#changeListeners) listener(name);
  }
}

/** The caller's later changes of its object must not reach the document. */
function copyOf(value: RegistryValue | null): RegistryValue | null {
  return value && (JSON.parse(JSON.stringify(value)) as RegistryValue);
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}
