/** What the pool asks of a thread. */
export interface TokenizeRequest {
  readonly id: number;
  /** The folder of the model's files; a thread reads it once. */
  readonly folder: string;
  readonly texts: readonly string[];
  /** Whether the first of the texts starts a prompt. */
  readonly startsPrompt: boolean;
}

export interface TokenizeResult {
  /** The tokens of all texts in a row. */
  readonly tokens: Uint32Array;
  /** How many belong to each text. */
  readonly counts: readonly number[];
}

/** What a thread answers. */
export type TokenizeResponse = { readonly id: number } & (TokenizeResult | { readonly error: string });
