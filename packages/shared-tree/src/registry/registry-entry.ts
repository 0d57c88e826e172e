import { isJsonObject } from "@espalier/core";
/** UTF-8 bytes of an entry's value as JSON. */
export const maxRegistryValueBytes = 2_048;
/** UTF-16 units of an engine's id, and of a source's name. */
const maxRegistryNameLength = 255;
/** How long a removed entry is remembered, so that nothing older brings it back. */
export const tombstoneMs = 86_400_000;

/** Plain JSON: what a source says of an engine. */
export type RegistryValue = Readonly<Record<string, unknown>>;

/** What the document holds under a key. */
export interface RegistryEntry {
  /** Of a hybrid clock: of two entries the later stamp wins; of equal stamps the greater router. */
  readonly stamp: number;
  readonly router: string;
  /** Null for a removed entry. */
  readonly value: RegistryValue | null;
}

/** No clock makes higher stamps: the bound leaves capacity for later ones. */
const maxStamp = Number.MAX_SAFE_INTEGER - 2 ** 40;

const encoder = new TextEncoder();
const separator = "\u0000";

export type RegistryKind = "engine" | "drain";

/** A key of the document. Drain flags have a kind of their own, so that no other change of an engine touches them. */
export function registryKey(kind: RegistryKind, engine: string, source: string): string {
  for (const name of [engine, source]) {
    if (name.length > maxRegistryNameLength || name.includes(separator)) {
      throw new RangeError(`no name for the registry: ${name.slice(0, maxRegistryNameLength)}`);
    }
  }
  return [kind, engine, source].join(separator);
}

export interface RegistryName {
  readonly kind: RegistryKind;
  readonly engine: string;
  readonly source: string;
}

/** @returns undefined for what `registryKey` does not make */
export function readRegistryKey(key: string): RegistryName | undefined {
  const [kind, engine, source, ...rest] = key.split(separator);
  if ((kind !== "engine" && kind !== "drain") || engine === undefined || source === undefined) return undefined;
  if (rest.length > 0 || engine.length > maxRegistryNameLength || source.length > maxRegistryNameLength)
    return undefined;
  return { kind, engine, source };
}

/** Reads a value from a document that any router may have written. @returns undefined for what is no entry */
export function readRegistryEntry(found: unknown): RegistryEntry | undefined {
  if (!isJsonObject(found)) return undefined;
  const { stamp, router, value } = found;
  if (typeof stamp !== "number" || !Number.isInteger(stamp) || stamp < 0 || stamp > maxStamp) return undefined;
  if (typeof router !== "string" || router.length > maxRegistryNameLength) return undefined;
  if (value !== null && (!isJsonObject(value) || jsonBytes(value) > maxRegistryValueBytes)) return undefined;
  return { stamp, router, value };
}

export function isLaterEntry(one: RegistryEntry, other: RegistryEntry): boolean {
  if (one.stamp !== other.stamp) return one.stamp > other.stamp;
  return one.router > other.router;
}

export function isSameEntry(one: RegistryEntry, other: RegistryEntry): boolean {
  return one.stamp === other.stamp && one.router === other.router;
}

/** @returns Infinity for what is no JSON */
export function jsonBytes(value: unknown): number {
  try {
    return encoder.encode(JSON.stringify(value)).length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** JSON with the keys of every object in order, so that equal values are equal texts. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    isJsonObject(part)
      ? Object.fromEntries(Object.entries(part).sort(([one], [other]) => (one < other ? -1 : 1)))
      : part,
  );
}

/** Entries of the registry of one kind, removed ones included while they are remembered. */
export const maxRegistryEntries = 16_384;

/**
 * The latest entry ever seen of every key, and of each kind the entries with the latest stamps: what is kept does not
 * depend on the order in which entries arrive. Each kind has its own bound: engines take no place from drain flags.
 */
export class RegistryView {
  readonly #kinds: Readonly<Record<RegistryKind, Map<string, RegistryEntry>>> = { engine: new Map(), drain: new Map() };
  readonly #onDropped: (kind: RegistryKind) => void;

  /** @param onDropped called for each entry that finds or leaves no place among those of its kind */
  constructor(onDropped: (kind: RegistryKind) => void) {
    this.#onDropped = onDropped;
  }

  get size(): number {
    return this.#kinds.engine.size + this.#kinds.drain.size;
  }

  isFull(kind: RegistryKind): boolean {
    return this.#kinds[kind].size >= maxRegistryEntries;
  }

  get(key: string): RegistryEntry | undefined {
    return this.#kinds[kindOf(key)].get(key);
  }

  *entries(): Generator<[string, RegistryEntry], void, undefined> {
    yield* this.#kinds.engine;
    yield* this.#kinds.drain;
  }

  /** @returns the keys of which it changed what is kept: this one, and one that made room for it */
  put(key: string, entry: RegistryEntry): readonly string[] {
    const kind = kindOf(key);
    const entries = this.#kinds[kind];
    const known = entries.get(key);
    const replaced = known || !this.isFull(kind) ? key : earliestOf(entries);
    if (replaced !== key) this.#onDropped(kind);
    const before = entries.get(replaced);
    if (before && !isLaterEntry(entry, before)) return [];
    entries.delete(replaced);
    entries.set(key, entry);
    return replaced === key ? [key] : [key, replaced];
  }

  forget(key: string): void {
    this.#kinds[kindOf(key)].delete(key);
  }
}

const kindOf = (key: string): RegistryKind => (key.startsWith(`drain${separator}`) ? "drain" : "engine");

function earliestOf(entries: Iterable<readonly [string, RegistryEntry]>): string {
  return [...entries].reduce((least, one) => (isLaterEntry(least[1], one[1]) ? one : least))[0];
}
