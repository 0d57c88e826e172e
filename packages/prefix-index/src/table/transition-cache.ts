/** Words of an entry: set, its version, operation, result, its version. */
const entryWords = 5;
const entries = 2_048;
/** No set has this number. */
const none = 0xffff_ffff;

/**
 * Remembers which set comes of another one by adding or removing a holder. Numbers of sets are used again, so each goes
 * with its version.
 */
export class TransitionCache {
  /** The version that the result had which `find` returned. */
  resultVersion = 0;
  readonly #words = new Uint32Array(entries * entryWords).fill(none);

  get byteLength(): number {
    return this.#words.byteLength;
  }

  /** @returns the remembered result, which may be out of date by its version; 0 for none */
  find(set: number, version: number, operation: number): number {
    const words = this.#words;
    const at = placeOf(set, operation);
    if (words[at] !== set || words[at + 1] !== version || words[at + 2] !== operation) return 0;
    this.resultVersion = words[at + 4]!;
    return words[at + 3]!;
  }

  /** Remembers a result of a transition in place of any other at the same place. */
  remember(set: number, version: number, operation: number, result: { set: number; version: number }): void {
    const words = this.#words;
    const at = placeOf(set, operation);
    words[at] = set;
    words[at + 1] = version;
    words[at + 2] = operation;
    words[at + 3] = result.set;
    words[at + 4] = result.version;
  }
}

function placeOf(set: number, operation: number): number {
  const hash = Math.imul(Math.imul(set, 0x9e3779b1) ^ operation, 0x85ebca6b) >>> 0;
  return (hash >>> 21) * entryWords;
}
