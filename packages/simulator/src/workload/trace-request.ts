/** A chat message from the trace. All its fields are passed through. */
export type ChatMessage = Readonly<Record<string, unknown>> & { readonly role: string };

/** The content sent to an engine: the text of a completion request, or the messages of a chat request. */
export type Prompt = string | readonly ChatMessage[];

/** The numbers of blocks, in order. */
export type BlockIds = ArrayLike<number> & Iterable<number>;

/** When a client that waits for answers sends a request: some time after the answers to earlier ones of its session. */
interface RequestWait {
  /** Turns of the same session, all earlier ones. Empty for requests that begin a session. */
  readonly after: readonly number[];
  /** Time from the last of those answers, or from the start of the session. */
  readonly thinkMs: number;
}

/** An agent that works for a session. */
export interface TraceAgent {
  readonly name: string;
  /** The agent that began it; absent for the session's own. */
  readonly parent?: string;
}

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
  readonly blockIds: BlockIds | undefined;
  readonly blockTokens: number;
  /** Blocks at the beginning that other sessions also have, such as tools; absent when the trace does not tell. */
  readonly sharedBlocks?: number;
  /** The conversation it belongs to. */
  readonly session: string;
  /** The agent of the session that sends it; absent for the session's own. */
  readonly agent?: TraceAgent;
  /** Its place in the session, from 0. */
  readonly turn: number;
  /** The prompt itself, if the trace has it. */
  readonly prompt?: Prompt;
  /** Absent when the trace has only times of arrival. */
  readonly wait?: RequestWait;
}
