import type { RequestReport } from "@espalier/engine-model";
import type { AnswerExtra } from "../transfer/leg.ts";

/** How an endpoint words its answer. */
export interface AnswerFormat {
  /** The answer as one body. */
  whole(reports: readonly RequestReport[], extra: AnswerExtra): string;
  /** The events for one token of one sequence. */
  token(sequence: number, index: number): string;
  /** The events after the last token. */
  end(reports: readonly RequestReport[]): string;
  /** An answer without a token, of endpoints that can be asked for what may end so. */
  readonly nothing?: (finishReason: string) => { readonly whole: string; readonly events: string };
}
