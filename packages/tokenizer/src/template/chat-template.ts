import type { Clock } from "@espalier/common";
import type { ChatInput } from "./chat-input.ts";
import { compileTemplate, type RenderTemplate } from "./compile.ts";
import { type ContentFormat, detectContentFormat } from "./content-format.ts";
import { type Conversation, type TemplateMessage, toConversation, toTools } from "./conversation.ts";
import { createGlobals } from "./globals.ts";
import { TemplateError, valueError } from "./template-error.ts";
import { strip } from "./text.ts";
import { parseTemplate } from "./tokens.ts";

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
  readonly contentFormat: ContentFormat;
  /**
   * Renders the prompt of a chat as the engine does before it tokenises.
   *
   * @throws TemplateError when the engine would refuse the chat, or at a bound of the renderer
   */
  render(input: ChatInput): string;
  /** As `render`, and says how far the text is the prompt when the chat has images, audio or video. */
  renderChat(input: ChatInput): RenderedChat;
}

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
  const renderTemplate = guarded(() => compileTemplate(program, createGlobals(options.clock)));
  const contentFormat = options.contentFormat ?? detectContentFormat(program);
  const renderer: Renderer = { renderTemplate, contentFormat, specialTokens: options.specialTokens ?? {} };
  return {
    contentFormat,
    render: (input) => guarded(() => renderText(renderer, input, toConversation(input.messages, contentFormat))),
    renderChat: (input) => guarded(() => renderWithParts(renderer, input)),
  };
}

interface Renderer {
  readonly renderTemplate: RenderTemplate;
  readonly contentFormat: ContentFormat;
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

function renderText(renderer: Renderer, input: ChatInput, conversation: Conversation): string {
  const { addGenerationPrompt = true, continueFinalMessage = false } = input;
  if (continueFinalMessage && addGenerationPrompt) {
    throw valueError("continue_final_message and add_generation_prompt are not compatible");
  }
  const run = (messages: readonly TemplateMessage[]): string =>
    renderer.renderTemplate({
      ...renderer.specialTokens,
      ...input.variables,
      messages,
      tools: input.tools ? toTools(input.tools) : null,
      documents: input.documents ?? null,
      add_generation_prompt: addGenerationPrompt,
    });
  return continueFinalMessage ? renderOpen(conversation.messages, run) : run(conversation.messages);
}

/** What transformers puts behind the final message to find its end in the rendered text. */
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

/** Stands for a part while its place is looked for; no text contains it but by intent. */
const partMark = "\u{10fffd}espalier part\u{10fffd}";

function renderWithParts(renderer: Renderer, input: ChatInput): RenderedChat {
  const conversation = toConversation(input.messages, renderer.contentFormat);
  const text = renderText(renderer, input, conversation);
  const { firstWithParts, messages } = conversation;
  if (firstWithParts === undefined) return { text };
  const marked = messages.with(firstWithParts, withMark(messages[firstWithParts]!));
  return { text, textUntil: placeOfMark(text, renderText(renderer, input, { messages: marked, firstWithParts })) };
}

/**
 * The message with a mark where its first part that is not text stands. A template of strings has the engine put the
 * placeholders of all parts before the text.
 */
function withMark(message: TemplateMessage): TemplateMessage {
  const { content } = message;
  if (!Array.isArray(content)) return { ...message, content: partMark + String(content) };
  const part = (content as readonly TemplateMessage[]).findIndex(({ type }) => type !== "text");
  return { ...message, content: content.with(part, { type: "text", text: partMark }) };
}

/** Where the mark stands, or where the two renderings part when the template looks at parts before it writes them. */
function placeOfMark(text: string, marked: string): number {
  const mark = marked.indexOf(partMark);
  const end = Math.min(Math.max(mark, 0), text.length);
  let same = 0;
  while (same < end && text.charCodeAt(same) === marked.charCodeAt(same)) same++;
  return same;
}
