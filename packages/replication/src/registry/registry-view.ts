import { isLaterEntry, type RegistryEntry } from "./registry-entry.ts";

/** Entries of the registry, removed ones included while they are remembered. */
export const maxRegistryEntries = 16_384;

/** Of every key the latest entry that was ever seen. */
export class RegistryView {
  /** Entries of others that found no room. */
  refused = 0;
  readonly #entries = new Map<string, RegistryEntry>();

  get size(): number {
    return this.#entries.size;
  }

  get isFull(): boolean {
    return this.#entries.size >= maxRegistryEntries;
  }

  get(key: string): RegistryEntry | undefined {
    return this.#entries.get(key);
  }

  entries(): IterableIterator<[string, RegistryEntry]> {
    return this.#entries.entries();
  }

  /** @returns whether it is the latest of its key */
  put(key: string, entry: RegistryEntry): boolean {
    const known = this.#entries.get(key);
    if (known && !isLaterEntry(entry, known)) return false;
    if (!known && this.isFull) {
      this.refused += 1;
      return false;
    }
    this.#entries.set(key, entry);
    return true;
  }

  forget(key: string): void {
    this.#entries.delete(key);
  }
}
