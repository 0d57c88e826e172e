import type { Clock, JsonObject } from "@espalier/core";
import { type ChatRenderer, createChatRenderer } from "../chat/chat-renderer.ts";
import type { RenderedChat } from "../chat/chat-template.ts";
import { mediaHash, processorArguments } from "../chat/media-part.ts";
import type { PromptBlocks } from "../prompt/prompt-blocks.ts";
import { type PromptEncoder, type PromptPlan, unknownPieces } from "../prompt/prompt-encoder.ts";
import {
  firstPartMessage,
  type PromptRequest,
  type PromptSource,
  promptSource,
  wantsSpecialTokens,
} from "../prompt-request.ts";
import { createTextTokenizer } from "../text/text-tokenizer.ts";
import { loadTokenizerFiles } from "../tokenizer-files.ts";
import { canonicalMessages } from "./canonical-chat.ts";
import { createChatMemory } from "./chat-memory.ts";
import type { ModelTokenizerOptions } from "./model-tokenizer.ts";
import {
  defaultBudgetMs,
  digestText,
  type PromptMode,
  type PromptView,
  textBytesPerToken,
  viewOfBlocks,
  withinBudget,
} from "./prompt-view.ts";

/** About 500 tokens, which take a third of a millisecond. */
const defaultInlineLength = 2_048;

interface LocalModeOptions extends Omit<ModelTokenizerOptions, "model" | "mode" | "folder" | "clock" | "logger"> {
  readonly folder: string;
  readonly encoder: PromptEncoder;
  readonly renderer: ChatRenderer;
}

interface Encoded {
  readonly blocks: PromptBlocks;
  readonly complete: boolean;
}

/** Prompts from the model's own tokenizer and template. */
export function createLocalMode(options: LocalModeOptions): PromptMode {
  const { encoder, renderer, hasher, blockSize } = options;
  const blockBytes = textBytesPerToken * blockSize;
  const finish = createBudgetedEncoder(options);
  const encode = (text: string, addSpecialTokens: boolean) => finish(encoder.plan(text, addSpecialTokens));
  const memory = createChatMemory(options);
  const viewOf = ({ blocks, complete }: Encoded): PromptView => viewOfBlocks(blocks, "tokens", complete);
  const view: PromptMode["view"] = (request, source) => {
    if (source.kind !== "chat") {
      const text = source.kind === "text" ? source.text : "";
      return then(encode(text, wantsSpecialTokens(request.fields)), viewOf);
    }
    const rendered = renderer.render(request);
    const { text, textUntil } = rendered;
    if (textUntil === undefined) return then(encode(text, false), viewOf);
    // Placeholders of images differ between engines, so the rest of the prompt is matched by the chat's own bytes.
    const cut = encoder.cutWithin(text, textUntil);
    const later = source.messages.slice(Math.max(0, firstPartMessage(source.messages)));
    return then(encode(text.slice(0, cut), false), (encoded) => {
      const rest = [...encoded.blocks.leftover].join(",") + canonicalMessages(later, hasher);
      const bare = extendView(viewOf(encoded), digestText(rest, blockBytes, hasher), blockBytes / blockSize);
      const pieces = encoded.complete ? mediaPieces(rendered, cut, encoder) : undefined;
      if (!pieces) return bare;
      const plan = encoder.planPieces(encoded.blocks, pieces.texts);
      return then(finish(plan), ({ complete }): PromptView => {
        const segments = complete ? plan.pieces.flatMap(({ tokens }) => tokens ?? []) : [];
        if (segments.length < plan.pieces.length) return bare;
        const given = processorArguments(request.fields);
        const parts = pieces.parts.map(({ part, width }) => ({ hash: mediaHash(part, given), width }));
        return { ...bare, media: { before: encoded.blocks, segments, parts, isWhole: pieces.isWhole } };
      });
    });
  };
  const resume: PromptMode["resume"] = (request) => {
    const remembered = memory.plan(request);
    return remembered && then(finish(remembered.plan, remembered.learn), viewOf);
  };
  return { view, resume, asChat: renderer.asChat };
}

/**
 * The text after a cut, divided at the end of each part's last special token.
 *
 * @returns undefined when the first part has none
 */
function mediaPieces({ text, parts = [], partsUntil }: RenderedChat, cut: number, encoder: PromptEncoder) {
  const texts: string[] = [];
  const placed: { readonly part: JsonObject; readonly width: number }[] = [];
  let at = cut;
  let until = partsUntil;
  for (const { part, start, end } of parts) {
    const ends = encoder.cuts(text.slice(start, end));
    const last = ends.at(-1);
    if (last === undefined) {
      until = start;
      break;
    }
    texts.push(text.slice(at, start + last));
    placed.push({ part, width: ends.length });
    at = start + last;
  }
  if (placed.length === 0) return undefined;
  texts.push(until === undefined ? text.slice(at) : text.slice(at, Math.max(at, encoder.cutWithin(text, until))));
  return { texts, parts: placed, isWhole: until === undefined };
}

function extendView(
  view: PromptView,
  { contents, sizeBytes }: { readonly contents: Uint32Array; readonly sizeBytes: number },
  bytesPerToken: number,
): PromptView {
  // Nothing may follow an incomplete beginning.
  if (!view.complete) return view;
  const all = new Uint32Array(view.contents.length + contents.length);
  all.set(view.contents);
  all.set(contents, view.contents.length);
  return { ...view, contents: all, blocks: all.length / 2, count: view.count + Math.ceil(sizeBytes / bytesPerToken) };
}

/** Tokenizes short new text at once. Long new text goes to a thread, for as long as the budget lasts. */
function createBudgetedEncoder({
  encoder,
  folder,
  pool,
  scheduler,
  budgetMs = defaultBudgetMs,
  inlineLength = defaultInlineLength,
}: LocalModeOptions): (plan: PromptPlan, onTokens?: (whole: PromptBlocks) => void) => Encoded | Promise<Encoded> {
  const beginning = (plan: PromptPlan): Encoded => ({ blocks: encoder.beginning(plan), complete: false });
  return (plan, onTokens) => {
    const whole = (blocks: PromptBlocks): Encoded => {
      onTokens?.(blocks);
      return { blocks, complete: true };
    };
    const unknown = unknownPieces(plan);
    const length = unknown.reduce((sum, piece) => sum + piece.text.length, 0);
    if (!pool || length <= inlineLength) return whole(encoder.encode(plan));
    const startsPrompt = unknown[0]?.isFirst === true;
    const tokens = pool.encode({ folder, texts: unknown.map((piece) => piece.text), startsPrompt });
    if (!tokens) return beginning(plan);
    const work = tokens.then(
      (rows): Encoded => {
        for (const [index, piece] of unknown.entries()) piece.tokens = rows[index];
        return whole(encoder.finish(plan));
      },
      // The pool restarts a thread that failed.
      () => beginning(plan),
    );
    return withinBudget(work, { scheduler, budgetMs, meanwhile: () => beginning(plan) });
  };
}

function then<A, B>(value: A | Promise<A>, next: (value: A) => B | Promise<B>): B | Promise<B> {
  return value instanceof Promise ? value.then(next) : next(value);
}

/**
 * All tokens of a request's prompt, as an engine with these files would have them.
 *
 * @returns undefined when the request has no prompt
 * @throws TemplateError when the chat template refuses the chat
 */
export type RequestTokens = (request: PromptRequest) => Uint32Array | undefined;

const none: PromptSource = { kind: "none" };

/**
 * @param folder of the model's files
 * @throws EspalierError when they cannot be used
 */
export async function loadRequestTokens(folder: string, clock: Clock): Promise<RequestTokens> {
  const files = await loadTokenizerFiles(folder);
  const tokenizer = createTextTokenizer(files);
  const renderer = createChatRenderer(files, clock);
  return (given) => {
    const request = renderer.asChat(given);
    const source = request ? promptSource(request) : none;
    switch (source.kind) {
      case "chat":
        return tokenizer.encode(renderer.render(request!).text, { addSpecialTokens: false });
      case "text":
        return tokenizer.encode(source.text, { addSpecialTokens: wantsSpecialTokens(given.fields) });
      case "tokens":
        return source.tokens;
      case "none":
        return undefined;
    }
  };
}
