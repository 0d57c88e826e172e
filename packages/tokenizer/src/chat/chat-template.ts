import type { Clock, JsonObject } from "@espalier/core";
import { compileTemplate, type ReachedState, type RenderTemplate, type TemplateState } from "../template/compile.ts";
import { createGlobals, type TimeRead, timeNow } from "../template/globals.ts";
import { parseTemplate } from "../template/parse.ts";
import { TemplateError, valueError } from "../template/template-error.ts";
import { strip } from "../template/text.ts";
import { MessageList } from "../template/values.ts";
import {
  type ChatDialect,
  type ContentFormat,
  detectContentFormat,
  detectSglangFormat,
  newestDialect,
} from "./chat-dialect.ts";
import { type ChatInput, toTools } from "./chat-input.ts";
import {
  type Conversation,
  type ConvertMessage,
  convertAll,
  namesDevelopers,
  type TemplateMessage,
  vllmMessages,
  withoutDevelopers,
} from "./conversation.ts";
import { sglangMessages, withoutLastAnswer } from "./sglang-conversation.ts";

export interface ChatTemplateOptions {
  /** `strftime_now` reads this clock's wall time as UTC. */
  readonly clock: Clock;
  /** `bos_token`, `eos_token` and others from the tokenizer's configuration. */
  readonly specialTokens?: Readonly<Record<string, unknown>>;
  /** The engines' `--chat-template-content-format`, unless it is detected. */
  readonly contentFormat?: ContentFormat;
}

export interface RenderedChat {
  readonly text: string;
  /**
   * How many characters (UTF-16 units) of the text the engine's prompt surely begins with: up to the first part that is
   * not text. Absent when all parts are text, so that the whole text is the prompt.
   */
  readonly textUntil?: number;
  /** The first images, audio and videos, up to one whose placeholder has no place of its own in the text. */
  readonly parts?: readonly RenderedPart[];
  /** Like `textUntil`, for the first part that is not among `parts`. Absent when there is none. */
  readonly partsUntil?: number;
}

/** What the template writes for an image, audio or video. */
interface RenderedPart {
  /** As the request has it. */
  readonly part: JsonObject;
  /** Where its placeholder begins and ends in the text, in characters. */
  readonly start: number;
  readonly end: number;
}

export interface ChatTemplate {
  /** The content format that vLLM assumes for the template. */
  readonly contentFormat: ContentFormat;
  /**
   * Renders the prompt of a chat as the engine does before tokenizing.
   *
   * @throws TemplateError when the engine would refuse the chat, or at a bound of the renderer
   */
  render(input: ChatInput): string;
  /** Like `render`, and reports how much of the text is the prompt when the chat has images, audio or video. */
  renderChat(input: ChatInput): RenderedChat;
  /**
   * Like `render` for a chat whose messages are read one by one, optionally from an earlier rendering's state.
   *
   * @param terms of this template
   * @param from a state that this chat can resume from
   * @returns undefined when the chat must be rendered as a whole: it has parts that are not text, has messages that the
   *   engine moves or changes because of others, or cannot be rendered
   */
  resume(terms: ChatTerms, messages: ChatMessages, from?: ChatState): ResumedChat | undefined;
  /** Whether a chat of `count` messages, whose first ones are those of the state, can resume from it. */
  canResume(from: ChatState, count: number): boolean;
  /**
   * A chat's input to its template besides its messages.
   *
   * @throws TemplateError when the engine would refuse its tools
   * @returns undefined for chats whose last message is left open, which are rendered as a whole
   */
  terms(input: Omit<ChatInput, "messages">): ChatTerms | undefined;
}

/** A chat's input to its template besides its messages, shared by all chats with the same input. */
export interface ChatTerms {
  readonly dialect: ChatDialect;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** Messages of a request. */
interface ChatMessages {
  readonly count: number;
  /** The message at an index, as `JSON.parse` returns it. */
  readonly at: (index: number) => unknown;
  /** How many of the first messages other chats are likely to share. */
  readonly shared: number;
}

/** A rendering after some of the messages. Chats with the same terms and the same first messages resume there. */
export interface ChatState {
  readonly template: TemplateState;
  /** What was read from the clock so far. */
  readonly times: readonly TimeRead[];
}

interface ResumedChat {
  /** The text after the state. */
  readonly text: string;
  readonly states: readonly ReachedChatState[];
}

/** A state that later renderings can resume from, its size, and the length of the text before it in characters. */
export type ReachedChatState = Omit<ReachedState, "state"> & { readonly state: ChatState };

/**
 * Prepares a chat template for many renderings, which equal those of Python's Jinja2 as Hugging Face transformers sets
 * it up (`apply_chat_template`; vLLM and SGLang call it).
 *
 * @throws TemplateError when the source is not a template that the parser reads
 *
 * @example
 * const template = compileChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", { clock });
 * template.render({ messages: [{ role: "user", content: "Hi" }] }); // "<user>Hi"
 */
export function compileChatTemplate(source: string, options: ChatTemplateOptions): ChatTemplate {
  const program = parseTemplate(source);
  const times: Renderer["times"] = { read: undefined };
  const globals = createGlobals(options.clock, (read) => times.read?.push(read));
  const renderTemplate = guarded(() => compileTemplate(program, globals));
  const { specialTokens = {} } = options;
  const contentFormat = options.contentFormat ?? detectContentFormat(program);
  const sglangFormat = options.contentFormat ?? detectSglangFormat(source, program);
  const renderer: Renderer = { source, renderTemplate, times, contentFormat, sglangFormat, specialTokens };
  const isTimeStill = ({ format, text }: TimeRead): boolean => timeNow(options.clock, format) === text;
  return {
    contentFormat,
    render: (input) => guarded(() => renderText(renderer, input, conversationOf(renderer, input))),
    renderChat: (input) => guarded(() => renderWithParts(renderer, input)),
    canResume: ({ template, times: read }, count) => template.least <= count && read.every(isTimeStill),
    terms: (input) => guarded(() => termsOf(renderer, input)),
    resume: (terms, messages, from) => {
      try {
        return guarded(() => resumeChat(renderer, terms, messages, from));
      } catch (error) {
        if (error instanceof TemplateError) return undefined;
        throw error;
      } finally {
        times.read = undefined;
      }
    },
  };
}

interface Renderer {
  readonly source: string;
  readonly renderTemplate: RenderTemplate;
  /** Clock reads of the current rendering, if its states are kept. */
  readonly times: { read: TimeRead[] | undefined };
  readonly contentFormat: ContentFormat;
  readonly sglangFormat: ContentFormat;
  readonly specialTokens: Readonly<Record<string, unknown>>;
}

/** A template that exhausts the stack or string memory has passed the bounds too. */
function guarded<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (error instanceof RangeError) throw new TemplateError("limit", error.message, { cause: error });
    throw error;
  }
}

const dialectOf = ({ dialect = newestDialect }: ChatInput): ChatDialect => dialect;

function conversionOf(renderer: Renderer, dialect: ChatDialect): ConvertMessage {
  return dialect === "sglang-0.5.23"
    ? sglangMessages(renderer.sglangFormat)
    : vllmMessages(renderer.contentFormat, dialect);
}

function conversationOf(renderer: Renderer, input: ChatInput): Conversation {
  const dialect = dialectOf(input);
  const conversation = convertAll(input.messages, conversionOf(renderer, dialect));
  return dialect === "sglang-0.5.23" ? conversation : withoutDevelopers(conversation, renderer.source);
}

function renderText(renderer: Renderer, input: ChatInput, conversation: Conversation): string {
  return dialectOf(input) === "sglang-0.5.23"
    ? renderForSglang(renderer, input, conversation)
    : renderForVllm(renderer, input, conversation);
}

function renderForVllm(renderer: Renderer, input: ChatInput, conversation: Conversation): string {
  const { addGenerationPrompt = true, continueFinalMessage = false } = input;
  if (continueFinalMessage && addGenerationPrompt) {
    throw valueError("continue_final_message and add_generation_prompt are not compatible");
  }
  const tools = input.tools ? toTools(input.tools, dialectOf(input)) : null;
  const run = (messages: readonly TemplateMessage[]): string =>
    renderer.renderTemplate({
      ...renderer.specialTokens,
      ...input.variables,
      messages,
      tools,
      documents: input.documents ?? null,
      add_generation_prompt: addGenerationPrompt,
    });
  return continueFinalMessage ? renderOpen(conversation.messages, run) : run(conversation.messages);
}

/**
 * The assistant's turn is always opened. A template that fails is tried once more with its tools as plain functions.
 */
function renderForSglang(renderer: Renderer, input: ChatInput, conversation: Conversation): string {
  const { messages, prefix } = withoutLastAnswer(conversation.messages, input.continueFinalMessage === true);
  const run = (tools: readonly unknown[] | null): string =>
    renderer.renderTemplate({
      ...renderer.specialTokens,
      ...input.variables,
      messages,
      tools,
      documents: null,
      add_generation_prompt: true,
    });
  const tools = input.tools ? toTools(input.tools, "sglang-0.5.23") : null;
  if (!tools) return run(null) + prefix;
  try {
    return run(tools) + prefix;
  } catch (error) {
    const isEngines = error instanceof TemplateError && (error.reason === "raised" || error.reason === "value");
    if (!isEngines) throw error;
    return run(tools.map((tool) => tool.function)) + prefix;
  }
}

function termsOf(renderer: Renderer, input: Omit<ChatInput, "messages">): ChatTerms | undefined {
  const dialect = dialectOf({ ...input, messages: [] });
  const isSglang = dialect === "sglang-0.5.23";
  if (input.continueFinalMessage) return undefined;
  const variables = {
    ...renderer.specialTokens,
    ...input.variables,
    tools: input.tools ? toTools(input.tools, dialect) : null,
    documents: isSglang ? null : (input.documents ?? null),
    add_generation_prompt: isSglang || (input.addGenerationPrompt ?? true),
  };
  return { dialect, variables };
}

/** The chat must be rendered as a whole. */
class NotResumable extends TemplateError {
  constructor() {
    super("value", "the chat is rendered as a whole");
  }
}

function resumeChat(
  renderer: Renderer,
  { dialect, variables }: ChatTerms,
  { count, at, shared }: ChatMessages,
  from: ChatState | undefined,
): ResumedChat {
  const isSglang = dialect === "sglang-0.5.23";
  const convert = conversionOf(renderer, dialect);
  const movesDevelopers = !isSglang && !namesDevelopers(renderer.source);
  const messages = new MessageList(count, (index) => {
    const { message, hasParts } = convert(at(index), index);
    const isLastAnswer = isSglang && index === count - 1 && message.role === "assistant";
    if (hasParts || isLastAnswer || (movesDevelopers && message.role === "developer")) throw new NotResumable();
    return message;
  });
  // A message is refused whether or not the template reads it.
  for (let index = Math.min(from?.template.messages ?? 0, count - 1); index < count; index++) messages.made(index);
  const times = [...(from?.times ?? [])];
  renderer.times.read = times;
  const { text, states } = renderer.renderTemplate.resume(variables, messages, from?.template, shared);
  return { text, states: states.map((reached) => ({ ...reached, state: { template: reached.state, times } })) };
}

/** Transformers appends this to the final message to find its end in the rendered text. */
const endTag = "CONTINUE_FINAL_MESSAGE_TAG ";

/** Renders with the last message left open: cuts the text where its content ends, as transformers 4.50 and later do. */
function renderOpen(
  messages: readonly TemplateMessage[],
  run: (messages: readonly TemplateMessage[]) => string,
): string {
  const last = messages.at(-1);
  const tagged = last && withTag(last.content);
  if (!last || !tagged)
    throw valueError("continue_final_message is set but the final message has no content to continue");
  const text = run([...messages.slice(0, -1), { ...last, content: tagged.content }]);
  const at = text.lastIndexOf(endTag.trimEnd());
  if (at < 0 || !text.includes(strip(tagged.text, null, "both"))) {
    throw valueError("continue_final_message is set but the final message does not appear in the rendered chat");
  }
  const head = text.slice(0, at);
  // A template that trims the content has also trimmed the tag's blank.
  return text.startsWith(endTag, at) ? head : strip(head, null, "right");
}

function withTag(content: unknown): { readonly content: unknown; readonly text: string } | undefined {
  if (typeof content === "string") return { content: content + endTag, text: content };
  if (!Array.isArray(content)) return undefined;
  const parts = content as readonly TemplateMessage[];
  const index = parts.findLastIndex((part) => typeof part.text === "string");
  const text = parts[index]?.text;
  if (typeof text !== "string") return undefined;
  return { content: parts.with(index, { ...parts[index], text: text + endTag }), text };
}

/** Marks a part to find its position. No text contains it by accident. */
const partMark = "\u{10fffd}espalier part\u{10fffd}";

/** Images, audio and videos of a chat that are placed in its text: each takes a rendering. */
export const maxPlacedParts = 32;

function renderWithParts(renderer: Renderer, input: ChatInput): RenderedChat {
  const conversation = conversationOf(renderer, input);
  const text = renderText(renderer, input, conversation);
  const { firstWithParts, messages, media } = conversation;
  if (firstWithParts === undefined) return { text };
  const renderMarked = (message: number, part: number): string =>
    renderText(renderer, input, {
      ...conversation,
      messages: messages.with(message, withMark(messages[message]!, part)),
    });
  const firstMarked = renderMarked(firstWithParts, partsOf(messages[firstWithParts]!)[0] ?? 0);
  const textUntil = placeOfMark(text, firstMarked);
  if (!media) return { text, textUntil };
  const places = messages.flatMap((message, at) => partsOf(message).map((part) => [at, part] as const));
  const parts: RenderedPart[] = [];
  for (const [index, [message, at]] of places.slice(0, maxPlacedParts).entries()) {
    const marked = index === 0 ? firstMarked : renderMarked(message, at);
    const place = partOfMark(text, marked);
    if (!place || place.start < (parts.at(-1)?.end ?? 0))
      return { text, textUntil, parts, partsUntil: placeOfMark(text, marked) };
    parts.push({ part: media[index]!, ...place });
  }
  const beyond = places[maxPlacedParts];
  if (!beyond) return { text, textUntil, parts };
  return { text, textUntil, parts, partsUntil: placeOfMark(text, renderMarked(...beyond)) };
}

/** The indices of a message's parts that are not text. */
function partsOf({ content }: TemplateMessage): readonly number[] {
  if (!Array.isArray(content)) return [];
  return [...(content as readonly TemplateMessage[]).entries()].flatMap(([at, { type }]) =>
    type === "text" ? [] : [at],
  );
}

/** The message with a mark in place of a part. For a template of strings, the engine puts all placeholders before the text. */
function withMark(message: TemplateMessage, part: number): TemplateMessage {
  const { content } = message;
  if (!Array.isArray(content)) return { ...message, content: partMark + String(content) };
  return { ...message, content: content.with(part, { type: "text", text: partMark }) };
}

/** What the mark replaced in the text; undefined if the text around it is another one. */
function partOfMark(text: string, marked: string): { readonly start: number; readonly end: number } | undefined {
  const start = marked.indexOf(partMark);
  if (start < 0) return undefined;
  const after = marked.slice(start + partMark.length);
  const end = text.length - after.length;
  return end >= start && text.startsWith(marked.slice(0, start)) && text.endsWith(after) ? { start, end } : undefined;
}

/** Where the mark is, or where the two renderings diverge if the template reads parts before it writes them. */
function placeOfMark(text: string, marked: string): number {
  const mark = marked.indexOf(partMark);
  const end = Math.min(Math.max(mark, 0), text.length);
  let same = 0;
  while (same < end && text.charCodeAt(same) === marked.charCodeAt(same)) same++;
  return same;
}
