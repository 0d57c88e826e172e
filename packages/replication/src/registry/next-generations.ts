import type { GenerationDocument } from "./generation-document.ts";

/** Later generations that are waited for. One whose beginner died is never whole; the routers go past it. */
export const maxNextGenerations = 4;

/** Generations after the one that holds, which are not whole yet. */
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

  /** Whether a generation would be the first to go for want of room. */
  isTooLow(generation: number): boolean {
    return this.#documents.size >= maxNextGenerations && generation < Math.min(...this.#documents.keys());
  }

  /** @returns the one that went for want of room */
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
