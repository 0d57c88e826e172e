import { createJsonUsageReader, createSseUsageFilter, readResponseId, type Usage } from "@espalier/openai";
import type { BodyFilter } from "./response-sink.ts";

/** What is read from an answer on its way to the client. */
export interface AnswerWatch extends BodyFilter {
  usage(): Usage | undefined;
  /** The id of a stored response, when the answer is one and has been seen far enough. */
  responseId(): string | undefined;
}

export interface AnswerWatchOptions {
  readonly contentType: string;
  /** Removes the usage event that the router asked for and the client did not. */
  readonly stripUsage: boolean;
  /** Reads the id of a response object from the first bytes. */
  readonly readId: boolean;
  /** Called with the number of tokens that a chunk brought, about. */
  readonly onTokens: (count: number) => void;
}

const idHeadBytes = 4_096;

/** @returns undefined for a body in which there is nothing to read */
export function watchAnswer(options: AnswerWatchOptions): AnswerWatch | undefined {
  if (options.contentType.startsWith("text/event-stream")) return watchStream(options);
  if (options.contentType.startsWith("application/json")) return watchJson(options);
  return undefined;
}

function watchStream({ stripUsage, readId, onTokens }: AnswerWatchOptions): AnswerWatch {
  const filter = createSseUsageFilter({ strip: stripUsage });
  const head = createHead(readId);
  let counted = 0;
  return {
    changesLength: stripUsage,
    push(chunk) {
      head.push(chunk);
      const passed = filter.push(chunk);
      const seen = filter.tokensSeen();
      if (seen > counted) onTokens(seen - counted);
      counted = seen;
      return passed;
    },
    end: () => filter.end(),
    usage: () => filter.usage(),
    responseId: head.responseId,
  };
}

function watchJson({ readId }: AnswerWatchOptions): AnswerWatch {
  const reader = createJsonUsageReader();
  const head = createHead(readId);
  return {
    changesLength: false,
    push(chunk) {
      head.push(chunk);
      reader.push(chunk);
      return chunk;
    },
    end: () => undefined,
    usage: () => reader.usage(),
    responseId: head.responseId,
  };
}

/** Keeps the first bytes of an answer when its id is wanted. */
function createHead(wanted: boolean): { push(chunk: Buffer): void; responseId(): string | undefined } {
  const pieces: Buffer[] = [];
  let size = 0;
  return {
    push(chunk) {
      if (!wanted || size >= idHeadBytes) return;
      pieces.push(Buffer.from(chunk.subarray(0, idHeadBytes - size)));
      size += chunk.length;
    },
    responseId: () => (size === 0 ? undefined : readResponseId(Buffer.concat(pieces))),
  };
}
