import type { JsonBody } from "@espalier/core";
import { type ChatDialect, chatDialects, newestDialect } from "../chat/chat-dialect.ts";
import { exactValue, termFields } from "../chat/chat-input.ts";
import type { ChatRenderer, ChatTermsOfModel } from "../chat/chat-renderer.ts";
import type { ChatState, ReachedChatState } from "../chat/chat-template.ts";
import { ByteKey, type ByteSpan, ByteTree } from "../prompt/byte-tree.ts";
import type { PromptBlocks } from "../prompt/prompt-blocks.ts";
import type { PromptEncoder, PromptPlan } from "../prompt/prompt-encoder.ts";
import type { PromptRequest } from "../prompt-request.ts";

export interface ChatMemoryOptions {
  readonly encoder: PromptEncoder;
  readonly renderer: ChatRenderer;
  /** Most bytes remembered (32 MiB). */
  readonly chatBytes?: number;
}

const defaultChatBytes = 32 * 1024 * 1024;
/** A state is not kept when its text after the last cut is longer. */
const maxTailLength = 4_096;
/** Estimated size of a key or value of the fields in a template, in addition to its bytes. */
const valueBytes = 64;
/** Estimated size of a state in addition to the counted parts: some objects and two arrays. */
const stateBytes = 1_024;
/** V8 copies a substring up to this length; a longer one keeps the whole text alive. */
const maxCopiedLength = 12;

/** A prompt whose beginning may equal that of an earlier one. */
interface RememberedPlan {
  readonly plan: PromptPlan;
  /** Remembers the prompt, once all pieces of its plan have tokens. */
  readonly learn: (whole: PromptBlocks) => void;
}

/**
 * A cache of chats by the bytes of their bodies. A conversation's next turn begins, byte for byte, with the messages of
 * the one before. Earlier messages are only compared; those that follow are read, rendered and tokenized. Only compared
 * bytes count as equal.
 */
export interface ChatMemory {
  /**
   * @returns undefined for requests that must be read as a whole: anything but chats, and chats whose template does not
   *   render earlier messages to a beginning of the prompt
   */
  plan(request: PromptRequest): RememberedPlan | undefined;
}

/** Remembered under the bytes of a chat's terms and of its first messages. */
interface Remembered {
  readonly terms: ChatTermsOfModel;
  /** Undefined before the first message. */
  readonly reached: Reached | undefined;
}

interface Reached {
  readonly chat: ChatState;
  /** The prompt up to its last cut. */
  readonly blocks: PromptBlocks;
  /** The rendered text after that cut. */
  readonly tail: string;
}

/** Creates an empty memory for one model. */
export function createChatMemory({ encoder, renderer, chatBytes = defaultChatBytes }: ChatMemoryOptions): ChatMemory {
  const tree = new ByteTree<Remembered>(chatBytes);

  const learn = ({ chat, terms, text, plan }: Learning, whole: PromptBlocks, reached: ReachedChatState): void => {
    const known = encoder.until(plan, whole, reached.length);
    if (!known || known.blocks.tokenCount === 0 || reached.length - known.length > maxTailLength) return;
    const { blocks } = known;
    const tail = copyOf(text.slice(known.length, reached.length));
    const size =
      blocks.contents.byteLength + blocks.leftover.byteLength + 2 * tail.length + reached.sizeBytes + stateBytes;
    const value = { terms, reached: { chat: reached.state, blocks, tail } };
    tree.set(chat.key, chat.lengthTo(reached.state.template.needed), value, size);
  };

  return {
    plan({ endpoint, body, dialect = newestDialect }) {
      const chat = endpoint === "chat" && body ? bodyChat(body, dialect) : undefined;
      if (!body || !chat) return undefined;
      const { count, key } = chat;
      const { value: found, shared } = tree.find(
        key,
        ({ terms, reached }) => !reached || terms.template.canResume(reached.chat, count),
      );
      const terms = found?.terms ?? renderer.terms(chat.termFields(), dialect);
      if (!terms) return undefined;
      if (!found) tree.set(key, chat.termBytes, { terms, reached: undefined }, chat.termSize + stateBytes);
      const messages = { count, at: chat.messageAt, shared: chat.messagesWithin(shared) };
      const from = found?.reached;
      const rendered = terms.template.resume(terms.terms, messages, from?.chat);
      if (!rendered) return undefined;
      const text = from ? from.tail + rendered.text : rendered.text;
      const plan = from ? encoder.planAfter(from.blocks, text) : encoder.plan(text, false);
      const before = from?.tail.length ?? 0;
      return {
        plan,
        learn: (whole) => {
          for (const reached of rendered.states) {
            if (reached.state.template.messages === from?.chat.template.messages) continue;
            learn({ chat, terms, text, plan }, whole, { ...reached, length: before + reached.length });
          }
        },
      };
    },
  };
}

/** A chat whose states will be remembered. */
interface Learning {
  readonly chat: BodyChat;
  readonly terms: ChatTermsOfModel;
  readonly text: string;
  readonly plan: PromptPlan;
}

/** A chat in a body, read in place. */
interface BodyChat {
  readonly count: number;
  /** The dialect and the fields that the prompt depends on, then the messages. */
  readonly key: ByteKey;
  /** Bytes of the key before the messages. */
  readonly termBytes: number;
  /** Size of the fields as values, in bytes. */
  readonly termSize: number;
  readonly termFields: () => Readonly<Record<string, unknown>>;
  readonly messageAt: (index: number) => unknown;
  /** Bytes of the key up to the end of the first `messages`. */
  readonly lengthTo: (messages: number) => number;
  /** How many messages end within the first `bytes` of the key. */
  readonly messagesWithin: (bytes: number) => number;
}

/** Undefined for a body without messages or with two fields of the same name. */
function bodyChat(body: JsonBody, dialect: ChatDialect): BodyChat | undefined {
  const names = ["messages", ...termFields];
  const nodes = new Map<string, number>();
  const endOfBody = body.after(0);
  for (let key = 1; key < endOfBody; key = body.after(key + 1)) {
    const name = names.find((one) => body.isText(key, one));
    if (name === undefined) continue;
    if (nodes.has(name)) return undefined;
    nodes.set(name, key + 1);
  }
  const list = nodes.get("messages");
  if (list === undefined || body.kindOf(list) !== "array") return undefined;
  const messages: number[] = [];
  const end = body.after(list);
  for (let node = list + 1; node < end; node = body.after(node)) messages.push(node);
  if (messages.length === 0) return undefined;
  const spanOf = (node: number, end: number): ByteSpan => ({ bytes: body.bytes, start: body.startOf(node), end });
  const terms = termFields.flatMap((name) => {
    const node = nodes.get(name);
    return node === undefined ? [] : [{ name, node, span: spanOf(node, body.endOf(node)) }];
  });
  // No such line is a prefix of another, and it marks where each field ends: equal key bytes mean equal fields.
  const line = [chatDialects.indexOf(dialect), ...terms.map(({ name, span }) => `${name}:${span.end - span.start}`)];
  const head = Buffer.from(`${line.join(" ")}\n`);
  const termBytes = terms.reduce((sum, { span }) => sum + span.end - span.start, head.length);
  const start = body.startOf(list);
  const ends = messages.map((node) => termBytes + body.endOf(node) - start);
  const key = new ByteKey([
    { bytes: head, start: 0, end: head.length },
    ...terms.map(({ span }) => span),
    spanOf(list, body.endOf(messages.at(-1)!)),
  ]);
  return {
    count: messages.length,
    key,
    termBytes,
    termSize: terms.reduce((sum, { node }) => sum + (body.after(node) - node) * valueBytes, termBytes),
    termFields: () => Object.fromEntries(terms.map(({ name, node }) => [name, exactValue(body, node)])),
    messageAt: (index) => body.valueAt(messages[index]!),
    lengthTo: (count) => ends[count - 1]!,
    messagesWithin: (bytes) => {
      const first = ends.findIndex((end) => end > bytes);
      return first < 0 ? ends.length : first;
    },
  };
}

function copyOf(text: string): string {
  return text.length <= maxCopiedLength ? text : Buffer.from(text, "utf16le").toString("utf16le");
}
