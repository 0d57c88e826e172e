import type { ErrorCode } from "@espalier/common";
import type { RequestView, Span } from "@espalier/openai";
import type { ChatDialect, PromptView } from "@espalier/tokenizer";

/** By what rules a body is read. */
export interface ReadingRules {
  /** Levels of nesting. */
  readonly maxDepth: number;
  readonly trustsTransferFields: boolean;
}

/** How a prompt is cut into blocks. */
export interface PromptTerms {
  /** Of the model's files; undefined has it cut over its bytes. */
  readonly folder: string | undefined;
  readonly dialect: ChatDialect;
  /** Tokens in a block. */
  readonly blockSize: number;
  /** Bound of what is remembered of earlier prompts of the model. */
  readonly cacheBytes: number;
}

/** What the thread is asked. */
export interface BodyTask {
  /** Names the body: the one that was read last is known again by it. */
  readonly bodyId: number;
  /** In shared memory, so that nothing is copied. */
  readonly bytes: Uint8Array;
  readonly job:
    | { readonly kind: "read"; readonly path: string; readonly rules: ReadingRules }
    | { readonly kind: "prompt"; readonly endpoint: string; readonly terms: PromptTerms }
    | { readonly kind: "model" }
    | { readonly kind: "fields"; readonly names: readonly string[] };
}

/** A view as it goes from thread to thread. */
export interface PlainView extends Omit<RequestView, "endpoint" | "body" | "spans"> {
  /** The object without its large values, as JSON. */
  readonly frame: Uint8Array;
  readonly spans: readonly (readonly [name: string, span: Span])[];
}

/** What the thread answers. */
export type BodyResult =
  | { readonly kind: "refused"; readonly code: ErrorCode; readonly message: string; readonly param: string | undefined }
  | { readonly kind: "read"; readonly view: PlainView }
  | { readonly kind: "prompt"; readonly prompt: PromptView }
  | { readonly kind: "model"; readonly model: string | undefined }
  | { readonly kind: "fields"; readonly names: readonly string[] };
