import { hashOf } from "@espalier/core";
import { type Origin, originKey } from "@espalier/mesh";
import { Doc, type Map as YMap } from "yjs";
import { type RegistryEntry, readRegistryEntry } from "./registry-entry.ts";

const prefix = "registry/";
/** Entries per transaction while a generation is begun, so that no update is large. */
const entriesPerTransaction = 256;
/** No router reaches a higher number. */
const maxGeneration = 2 ** 40;
const completeKey = "complete";

function generationName(generation: number): string {
  return `${prefix}${generation}`;
}

/** @returns undefined for what is no name of a generation */
export function readGenerationName(name: string): number | undefined {
  if (!name.startsWith(prefix)) return undefined;
  const generation = Number(name.slice(prefix.length));
  return Number.isInteger(generation) &&
    generation > 0 &&
    generation <= maxGeneration &&
    generationName(generation) === name
    ? generation
    : undefined;
}

/**
 * One generation of the registry as a Yjs document: a map `entries`, and a map `meta` that says when it is complete.
 */
export class GenerationDocument {
  readonly generation: number;
  readonly name: string;
  readonly doc: Doc;
  readonly #entries: YMap<unknown>;
  readonly #meta: YMap<unknown>;

  /** @param self the origin whose client id it writes with; every epoch of every router has another one */
  constructor(generation: number, self: Origin) {
    this.generation = generation;
    this.name = generationName(generation);
    this.doc = new Doc();
    const { low, high } = hashOf(`${this.name} ${originKey(self)}`);
    this.doc.clientID = (high & 0x1f_ffff) * 2 ** 32 + low;
    this.#entries = this.doc.getMap("entries");
    this.#meta = this.doc.getMap("meta");
  }

  /** The first generation has no predecessor, so nothing needs to be waited for. */
  get isComplete(): boolean {
    return this.generation === 1 || this.#meta.get(completeKey) === true;
  }

  /** Writers that the document remembers, dead ones included. */
  get clients(): number {
    return this.doc.store.clients.size;
  }

  /** Yjs structs, which deletions leave behind too. */
  get structs(): number {
    let count = 0;
    for (const structs of this.doc.store.clients.values()) count += structs.length;
    return count;
  }

  get(key: string): RegistryEntry | undefined {
    return readRegistryEntry(this.#entries.get(key));
  }

  keys(): Iterable<string> {
    return this.#entries.keys();
  }

  set(entries: Iterable<readonly [string, RegistryEntry]>): void {
    const waiting = [...entries];
    if (waiting.length === 0) return;
    this.doc.transact(() => {
      for (const [key, entry] of waiting) this.#entries.set(key, entry);
    }, this);
  }

  delete(keys: readonly string[]): void {
    if (keys.length === 0) return;
    this.doc.transact(() => {
      for (const key of keys) this.#entries.delete(key);
    }, this);
  }

  /** Writes all entries, and then that they are complete. */
  begin(entries: readonly (readonly [string, RegistryEntry])[]): void {
    for (let from = 0; from < entries.length; from += entriesPerTransaction) {
      this.set(entries.slice(from, from + entriesPerTransaction));
    }
    this.doc.transact(() => this.#meta.set(completeKey, true), this);
  }

  /** @param listener called for every change of other routers, with the keys that changed */
  onRemoteChange(listener: (keys: Iterable<string>) => void): void {
    this.#entries.observe((event, transaction) => {
      if (transaction.origin !== this) listener(event.keysChanged);
    });
    this.#meta.observe((_event, transaction) => {
      if (transaction.origin !== this) listener([]);
    });
  }

  destroy(): void {
    this.doc.destroy();
  }
}

/** Later generations that are waited for. One whose beginner died never completes; the routers skip it. */
export const maxNextGenerations = 4;

/** Generations after the present one that are not complete yet. */
export class NextGenerations {
  readonly #documents = new Map<number, GenerationDocument>();

  all(): readonly GenerationDocument[] {
    return [...this.#documents.values()];
  }

  get(generation: number): GenerationDocument | undefined {
    return this.#documents.get(generation);
  }

  has(document: GenerationDocument): boolean {
    return this.#documents.get(document.generation) === document;
  }

  /** Whether a generation would be the first to go for lack of capacity. */
  isTooLow(generation: number): boolean {
    return this.#documents.size >= maxNextGenerations && generation < Math.min(...this.#documents.keys());
  }

  /** @returns the one dropped for lack of capacity */
  add(document: GenerationDocument): GenerationDocument | undefined {
    this.#documents.set(document.generation, document);
    if (this.#documents.size <= maxNextGenerations) return undefined;
    return this.#take(Math.min(...this.#documents.keys()));
  }

  /** @returns those up to a generation; they are not waited for any more */
  takeUpTo(generation: number): readonly GenerationDocument[] {
    const numbers = [...this.#documents.keys()].filter((number) => number <= generation);
    return numbers.flatMap((number) => this.#take(number) ?? []);
  }

  #take(generation: number): GenerationDocument | undefined {
    const document = this.#documents.get(generation);
    this.#documents.delete(generation);
    return document;
  }
}
