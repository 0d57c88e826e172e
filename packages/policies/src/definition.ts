import type { Policy } from "./policy.ts";

/** A number that shapes a policy. */
export interface PolicyOption {
  readonly name: string;
  readonly default: number;
  /** Words that stand for numbers; the option is written as one of them then. */
  readonly words?: Readonly<Record<string, number>>;
  /** The values it may have, in words. */
  readonly range: string;
  readonly meaning: string;
}

/** The default of an option, as it is written: a word where words stand for its numbers. */
export function writtenDefault({ default: value, words = {} }: PolicyOption): number | string {
  return Object.keys(words).find((word) => words[word] === value) ?? value;
}

/** What people read about a policy. */
export interface PolicyEntry {
  readonly summary: string;
  /** Where the rule comes from. */
  readonly source: string;
  readonly options: readonly PolicyOption[];
  /** Whether it looks at what the candidates hold of the prompt, or at the prompt's beginning. */
  readonly readsPrefixes: boolean;
  /**
   * Whether it looks at the blocks of all requests in flight, each counted once. Routers keep account of them only for
   * such a policy: it takes as long as a prompt has blocks.
   */
  readonly readsActiveBlocks?: boolean;
  /**
   * Milliseconds between two reads of engines' own metrics that its rule is made for; as for all others unless given. It
   * is the default where the operator has said nothing.
   */
  readonly metricsEveryMs?: number;
}

/** A policy as this package knows it. */
export interface PolicyDefinition extends PolicyEntry {
  readonly options: readonly (PolicyOption & { readonly accepts: (value: number) => boolean })[];
  /** @param option gives the value of the option with this name, checked or by default */
  create(option: (name: string) => number): Policy;
}
