/** What a client saw of one streamed or plain answer. */
export interface AnswerReading {
  /** Bytes of content text have arrived. */
  readonly sawContent: boolean;
  readonly sawDone: boolean;
  readonly promptTokens: number | undefined;
  readonly completionTokens: number | undefined;
  readonly cachedTokens: number | undefined;
  /** Message of an error object in the stream. */
  readonly error: string | undefined;
  /** The content, when it was asked for. */
  readonly text: string;
}

/** Reads a chat or text completion as a client would, whole (JSON) or in events (SSE), chunk by chunk. */
export interface AnswerReader {
  push(text: string): void;
  /** Call once at the end of the body. */
  end(): AnswerReading;
  readonly reading: AnswerReading;
}

interface AnswerBody {
  readonly choices?: readonly {
    readonly text?: string;
    readonly delta?: { readonly content?: string | null };
    readonly message?: { readonly content?: string | null };
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
  readonly error?: { readonly message?: string };
}

/**
 * @param streamed whether the body is a stream of server-sent events
 * @param keepText whether the content is wanted too, which makes reading dearer
 */
export function createAnswerReader(streamed: boolean, keepText = false): AnswerReader {
  const reading = {
    sawContent: false,
    sawDone: false,
    promptTokens: undefined as number | undefined,
    completionTokens: undefined as number | undefined,
    cachedTokens: undefined as number | undefined,
    error: undefined as string | undefined,
    text: "",
  };
  let pending = "";

  const readBody = (text: string): void => {
    const body = JSON.parse(text) as AnswerBody;
    const choice = body.choices?.[0];
    const content = choice?.text || choice?.delta?.content || choice?.message?.content;
    if (content) reading.sawContent = true;
    if (keepText && content) reading.text += content;
    if (body.error) reading.error = body.error.message ?? "unnamed error";
    if (!body.usage) return;
    reading.promptTokens = body.usage.prompt_tokens;
    reading.completionTokens = body.usage.completion_tokens;
    reading.cachedTokens = body.usage.prompt_tokens_details?.cached_tokens;
  };
  const readEvent = (event: string): void => {
    if (!event.startsWith("data:")) return;
    const data = event.slice(5).trim();
    if (data === "[DONE]") {
      reading.sawDone = true;
      return;
    }
    // Between the first content and the usage nothing in an event matters to a measurement: parsing each would make
    // the measuring client dearer than what it measures.
    if (keepText || !reading.sawContent || data.includes('"usage":{') || data.includes('"error"')) readBody(data);
  };

  return {
    reading,
    push(text) {
      pending += text;
      if (!streamed) return;
      let from = 0;
      for (let end = pending.indexOf("\n\n"); end >= 0; end = pending.indexOf("\n\n", from)) {
        readEvent(pending.slice(from, end));
        from = end + 2;
      }
      pending = pending.slice(from);
    },
    end() {
      if (!streamed) {
        readBody(pending);
        reading.sawDone = true;
      }
      return reading;
    },
  };
}
