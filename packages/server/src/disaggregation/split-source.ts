import type { RequestView } from "@espalier/openai";

/** A request as far as its legs are made of it. */
export interface SplitSource {
  readonly view: Pick<RequestView, "endpoint" | "body" | "choices" | "maxOutputTokens" | "stream">;
  /** The client's body with some keys set, as JSON text, besides what every engine gets. */
  edit(set: Readonly<Record<string, string>> | undefined, leg: LegBody): readonly Buffer[];
}

export interface LegBody {
  /** Whether the client gets the answer to it, so that it has to report what the router reads of answers. */
  readonly isAnswer: boolean;
  /** What the engine is expected to compute on the prompt, in milliseconds; 0 when nothing is known. */
  readonly workMs: number;
}
