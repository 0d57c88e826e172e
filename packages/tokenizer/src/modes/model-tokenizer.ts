import type { Hash64 } from "@espalier/core";
import { type Clock, EspalierError, type HttpClient, type Logger, type Scheduler } from "@espalier/core";
import { createChatRenderer } from "../chat/chat-renderer.ts";
import { createBlockBuilder, noBlocks, type PromptHasher } from "../prompt/prompt-blocks.ts";
import { createPromptEncoder } from "../prompt/prompt-encoder.ts";
import { otherChatEndpoints, type PromptRequest, type PromptSource, promptSource } from "../prompt-request.ts";
import { TemplateError } from "../template/template-error.ts";
import { createTextTokenizer } from "../text/text-tokenizer.ts";
import { loadTokenizerFiles } from "../tokenizer-files.ts";
import type { TokenizerPool } from "../workers/tokenizer-pool.ts";
import { bodyText, canonicalChat } from "./canonical-chat.ts";
import { createEngineMode } from "./engine-mode.ts";
import { createLocalMode } from "./local-mode.ts";
import {
  type PromptMode,
  type PromptView,
  textBytesPerToken,
  viewOfBlocks,
  viewOfText,
  viewOfUtf8,
} from "./prompt-view.ts";

export interface ModelTokenizerOptions {
  readonly model: string;
  /** `local`: with the model's files; `engine`: by an engine's `/tokenize`; `bytes`: not at all. */
  readonly mode: "local" | "engine" | "bytes";
  /** The folder of the model's files, for `local`. */
  readonly folder?: string;
  /** Tokens per block. */
  readonly blockSize: number;
  readonly hasher: PromptHasher;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  /** Most milliseconds that a request waits for its tokens (20 ms). */
  readonly budgetMs?: number;
  /** Threads for long new text; without them all text is tokenized at once, however long it takes. */
  readonly pool?: TokenizerPool;
  /** New text of up to this many characters is tokenized at once (2,048): a round trip to a thread costs more. */
  readonly inlineLength?: number;
  /** For `engine`. */
  readonly http?: HttpClient;
  /** For `engine`: the base URL of an engine that is up and serves the model. */
  readonly engineUrl?: () => string | undefined;
  readonly stateBytes?: number;
  readonly pieceBytes?: number;
  /** For `local`: see `ChatMemory`. */
  readonly chatBytes?: number;
}

/** Divides a cache: half for pieces that prompts share, a quarter each for beginnings of texts and of chats. */
export function cacheShares(
  cacheBytes: number,
): Required<Pick<ModelTokenizerOptions, "stateBytes" | "pieceBytes" | "chatBytes">> {
  const quarter = Math.floor(cacheBytes / 4);
  return { stateBytes: quarter, chatBytes: quarter, pieceBytes: cacheBytes - 2 * quarter };
}

/** Turns requests for one model into blocks. */
export interface ModelTokenizer {
  /**
   * The blocks of a request's prompt. Returns no promise when nearly all of it is known, else resolves within the
   * budget. A view that exceeds the budget contains only what is known; the rest is still computed for the next
   * request. Never fails: a prompt that cannot be tokenized is viewed as bytes.
   */
  view(request: PromptRequest): PromptView | Promise<PromptView>;
  /** The chain of a view's blocks from the root of its unit, two words per block. */
  chain(view: PromptView, root: Hash64): Uint32Array;
  /** The actual mode, which differs from the requested one when the model's files are unusable. */
  readonly mode: "local" | "engine" | "bytes";
}

/**
 * Prepares a model's tokenizer. Files that are missing, malformed or of an unsupported kind are logged as a warning,
 * and the model's prompts are then viewed as bytes.
 *
 * @throws TypeError when the mode lacks what it needs: `folder`, or `http` and `engineUrl`
 */
export async function createModelTokenizer(options: ModelTokenizerOptions): Promise<ModelTokenizer> {
  const { hasher, blockSize, model } = options;
  const blockBytes = textBytesPerToken * blockSize;
  const logger = options.logger.child({ model });
  const builder = createBlockBuilder({ hasher, blockSize });
  const chosen = await modeOf(options, logger);
  const asBytes = ({ fields }: PromptRequest, source: PromptSource): PromptView => {
    const text =
      source.kind === "chat"
        ? canonicalChat(fields, source.messages, hasher)
        : source.kind === "text"
          ? source.text
          : "";
    return viewOfText(text, blockBytes, hasher);
  };
  const asChat = (request: PromptRequest): PromptRequest | undefined => {
    if (!otherChatEndpoints.has(request.endpoint)) return request;
    try {
      return chosen?.asChat?.(request);
    } catch (error) {
      if (error instanceof TemplateError) return undefined;
      throw error;
    }
  };
  let hasWarned = false;
  const fallBack = (request: PromptRequest, source: PromptSource, error: unknown): PromptView => {
    const fields = { endpoint: request.endpoint, reason: error instanceof Error ? error.message : String(error) };
    const message = "prompt not tokenized: matched by bytes, without engines' KV events";
    if (hasWarned) logger.debug(message, fields);
    else logger.warn(`${message}; further cases are logged at debug level`, fields);
    hasWarned = true;
    return asBytes(request, source);
  };
  const resume = (chat: PromptRequest): PromptView | Promise<PromptView> | undefined => {
    try {
      const view = chosen?.resume?.(chat);
      return view instanceof Promise ? view.catch((error) => fallBack(chat, promptSource(chat), error)) : view;
    } catch (error) {
      return fallBack(chat, promptSource(chat), error);
    }
  };
  return {
    mode: chosen ? options.mode : "bytes",
    chain(view, root) {
      const chain = new Uint32Array(view.contents.length);
      hasher.blocks.mixContents({ parent: root, contents: view.contents, blocks: view.blocks, chain });
      return chain;
    },
    view(request) {
      const chat = chosen && asChat(request);
      if (request.body && !chat) {
        const text = bodyText(request.endpoint, request.body, hasher);
        if (text) return viewOfUtf8(text, blockBytes, hasher);
      }
      const resumed = chat && resume(chat);
      if (resumed) return resumed;
      const source = promptSource(chat ?? request);
      if (source.kind === "tokens") return viewOfBlocks(builder.append(noBlocks, [source.tokens]), "tokens", true);
      if (!chosen || !chat || source.kind === "none") return asBytes(request, source);
      try {
        const view = chosen.view(chat, source);
        return view instanceof Promise ? view.catch((error) => fallBack(request, source, error)) : view;
      } catch (error) {
        return fallBack(request, source, error);
      }
    },
  };
}

async function modeOf(options: ModelTokenizerOptions, logger: Logger): Promise<PromptMode | undefined> {
  switch (options.mode) {
    case "bytes":
      return undefined;
    case "engine":
      return createEngineMode(options);
    case "local":
      if (options.folder === undefined) throw new TypeError("the mode local needs a folder");
      try {
        return await localMode(options, options.folder);
      } catch (error) {
        if (!(error instanceof EspalierError)) throw error;
        logger.warn("tokenizer unusable: matching the model's prompts by bytes", {
          reason: error.message,
        });
        return undefined;
      }
  }
}

async function localMode(options: ModelTokenizerOptions, folder: string): Promise<PromptMode> {
  const files = await loadTokenizerFiles(folder);
  const encoder = createPromptEncoder({ ...options, tokenizer: createTextTokenizer(files) });
  return createLocalMode({ ...options, folder, encoder, renderer: createChatRenderer(files, options.clock) });
}
