import type { Clock } from "@espalier/common";
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
  /** `strftime_now` reads its wall time as UTC. */
  readonly clock: Clock;
  /** `bos_token`, `eos_token` and the others of the tokenizer's configuration. */
  readonly specialTokens?: Readonly<Record<string, unknown>>;
  /** The engines' `--chat-template-content-format`, when it is not left to detection. */
  readonly contentFormat?: ContentFormat;
}

export interface RenderedChat {
  readonly text: string;
  /**
   * How many characters (UTF-16 units) of the text an engine's prompt surely begins with: up to the first part that is
   * not text. Absent when all parts are text, so that the whole text is the prompt.
   */
  readonly textUntil?: number;
}

export interface ChatTemplate {
  /** What vLLM takes the template for. */
  readonly contentFormat: ContentFormat;
  /**
   * Renders the prompt of a chat as the engine does before it tokenises.
   *
   * @throws TemplateError when the engine would refuse the chat, or at a bound of the renderer
   */
  render(input: ChatInput): string;
  /** As `render`, and says how far the text is the prompt when the chat has images, audio or video. */
  renderChat(input: ChatInput): RenderedChat;
  /**
   * As `render` for a chat whose messages are read one by one, from where an earlier rendering has been.
   *
   * @param terms of this template
   * @param from a state that the chat can go on from
   * @returns undefined when the chat has to be rendered as a whole: it has other parts than text, messages that an engine
   *   moves or changes because of others, or cannot be rendered
   */
  resume(terms: ChatTerms, messages: ChatMessages, from?: ChatState): ResumedChat | undefined;
  /** Whether a chat with so many messages, of which the first are those of the state, goes on from there. */
  canResume(from: ChatState, count: number): boolean;
  /**
   * What a chat gives to its template in addition to its messages.
   *
   * @throws TemplateError when the engine would refuse its tools
   * @returns undefined for chats whose last message is left open, which are rendered as a whole
   */
  terms(input: Omit<ChatInput, "messages">): ChatTerms | undefined;
}

/** What a chat gives to its template in addition to its messages, shared by all chats that have the same. */
export interface ChatTerms {
  readonly dialect: ChatDialect;
  readonly variables: Readonly<Record<string, unknown>>;
}

/** Messages of a request. */
export interface ChatMessages {
  readonly count: number;
  /** One of them, as `JSON.parse` gives it. */
  readonly at: (index: number) => unknown;
  /** How many of the first ones another chat is likely to have too. */
  readonly shared: number;
}

/** A rendering after some of the messages. Chats with the same terms and the same first messages resume there. */
export interface ChatState {
  readonly template: TemplateState;
  /** What was read of the clock until then. */
  readonly times: readonly TimeRead[];
}

export interface ResumedChat {
  /** What follows what was written up to the state. */
  readonly text: string;
  readonly states: readonly ReachedChatState[];
}

/** A state that later renderings can go on from, what it takes, and how many characters of the text are before it. */
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
  /** What the rendering in hand has read of the clock, if it is one whose states are kept. */
  readonly times: { read: TimeRead[] | undefined };
  readonly contentFormat: ContentFormat;
  readonly sglangFormat: ContentFormat;
  readonly specialTokens: Readonly<Record<string, unknown>>;
}

/** What runs out of stack or memory for strings is a template past the bounds too. */
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

/** The assistant's turn is opened always. A template that fails gets its tools once more, as functions alone. */
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
    if (!(error instanceof TemplateError) || error.reason === "limit") throw error;
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

/** A chat turned out to be one that has to be rendered as a whole. */
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
  // Whether a message is refused does not depend on whether the template reads it.
  for (let index = Math.min(from?.template.messages ?? 0, count - 1); index < count; index++) messages.made(index);
  const times = [...(from?.times ?? [])];
  renderer.times.read = times;
  const { text, states } = renderer.renderTemplate.resume(variables, messages, from?.template, shared);
  return { text, states: states.map((reached) => ({ ...reached, state: { template: reached.state, times } })) };
}

/** What transformers appends to the final message to find its end in the rendered text. */
const endTag = "CONTINUE_FINAL_MESSAGE_TAG ";

/** Renders with the last message left open: the text is cut where its content ends, as transformers 4.50 and later do. */
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
  // A template that trims the content trimmed the blank of the tag too.
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

/** Marks a part while its position is looked for; no text contains it but by intent. */
const partMark = "\u{10fffd}espalier part\u{10fffd}";

function renderWithParts(renderer: Renderer, input: ChatInput): RenderedChat {
  const conversation = conversationOf(renderer, input);
  const text = renderText(renderer, input, conversation);
  const { firstWithParts, messages } = conversation;
  if (firstWithParts === undefined) return { text };
  const marked = messages.with(firstWithParts, withMark(messages[firstWithParts]!));
  return { text, textUntil: placeOfMark(text, renderText(renderer, input, { messages: marked, firstWithParts })) };
}

/**
 * The message with a mark at its first part that is not text. A template of strings has the engine put the
 * placeholders of all parts before the text.
 */
function withMark(message: TemplateMessage): TemplateMessage {
  const { content } = message;
  if (!Array.isArray(content)) return { ...message, content: partMark + String(content) };
  const part = (content as readonly TemplateMessage[]).findIndex(({ type }) => type !== "text");
  return { ...message, content: content.with(part, { type: "text", text: partMark }) };
}

/** Where the mark is, or where the two renderings diverge when the template looks at parts before it writes them. */
function placeOfMark(text: string, marked: string): number {
  const mark = marked.indexOf(partMark);
  const end = Math.min(Math.max(mark, 0), text.length);
  let same = 0;
  while (same < end && text.charCodeAt(same) === marked.charCodeAt(same)) same++;
  return same;
}
