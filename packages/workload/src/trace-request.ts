/** A chat message from the trace. All its fields are passed through. */
export type ChatMessage = Readonly<Record<string, unknown>> & { readonly role: string };

/** The content sent to an engine: the text of a completion request, or the messages of a chat request. */
export type Prompt = string | readonly ChatMessage[];

/** One request of a trace. */
export interface TraceRequest {
  /** Position in the order of arrival, from 0. */
  readonly index: number;
  /** Milliseconds after the first request of the trace. */
  readonly arrivalMs: number;
  readonly inputTokens: number;
  /** At least 1. */
  readonly outputTokens: number;
  /** The client's limit; absent when the trace gives none. */
  readonly maxOutputTokens?: number;
  /**
   * Names of the prompt's blocks of `blockTokens` tokens, in order. The same name at the same place after the same
   * blocks is the same text. Undefined when the trace has none. The last block may be partial or missing.
   */
  readonly blockIds: readonly number[] | undefined;
  readonly blockTokens: number;
  /** The conversation it belongs to. */
  readonly session: string;
  /** Its place in the session, from 0. */
  readonly turn: number;
  /** The prompt itself, if the trace has it. */
  readonly prompt?: Prompt;
}
