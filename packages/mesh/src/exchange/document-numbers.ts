/** Small numbers for the names of documents: the same on all links, so that a frame is written once for all of them. */
export class DocumentNumbers {
  readonly #capacity: number;
  readonly #numbers = new Map<string, number>();
  readonly #free: number[] = [];

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** @returns undefined when all numbers are taken */
  numberOf(name: string): number | undefined {
    const known = this.#numbers.get(name);
    if (known !== undefined) return known;
    const number = this.#free.pop() ?? (this.#numbers.size < this.#capacity ? this.#numbers.size : undefined);
    if (number !== undefined) this.#numbers.set(name, number);
    return number;
  }

  /** Frees the numbers of documents that are gone. @returns them; their names must be told again before they are used */
  retain(isThere: (name: string) => boolean): number[] {
    const freed: number[] = [];
    for (const [name, number] of this.#numbers) {
      if (isThere(name)) continue;
      this.#numbers.delete(name);
      freed.push(number);
    }
    this.#free.push(...freed);
    return freed;
  }
}
