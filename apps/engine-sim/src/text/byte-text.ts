import { hashText, mixWord } from "@espalier/core";
import { byteWords } from "./generated-text.ts";
import type { ChatPrompt, ChatTokens, ContentPart, ModelText } from "./model-text.ts";

/** Tokens of four bytes each, for engines without a model's tokenizer. */
export const byteText: ModelText = {
  chat: renderChat,
  text: encodeText,
  pair(first, second) {
    const writer = createTokenWriter();
    writer.text(first);
    writer.token(specialTokenIds.end);
    writer.text(second);
    return writer.finish();
  },
  decode: decodeTokens,
  words: byteWords,
};

const roles: Readonly<Record<string, SpecialToken>> = {
  system: "system",
  developer: "system",
  user: "user",
  assistant: "assistant",
  tool: "tool",
  function: "tool",
};

/**
 * The tokens of a conversation: tools and documents first, then each message between its role and an end. Each text is
 * a separate segment, so an answer that returns as an assistant's turn gives the tokens that were generated.
 *
 * @param openTurn whether to open the assistant's next turn at the end; not where the last message is continued
 */
function renderChat({ messages, tools, documents, body }: ChatPrompt, openTurn = true): ChatTokens {
  const isContinued = body?.continue_final_message === true;
  const writer = createTokenWriter();
  writeTurn(writer, "tools", tools);
  writeTurn(writer, "documents", documents);
  for (const [at, { role, parts, toolCalls }] of messages.entries()) {
    writer.token(specialTokenIds[(Object.hasOwn(roles, role) ? roles[role] : undefined) ?? "unknown"]);
    writeParts(writer, parts);
    if (toolCalls !== undefined) writer.text(toolCalls);
    if (!isContinued || at < messages.length - 1) writer.token(specialTokenIds.end);
  }
  if (openTurn && !isContinued) writer.token(specialTokenIds.assistant);
  return { tokens: writer.finish(), media: [] };
}

function writeTurn(writer: TokenWriter, name: SpecialToken, text: string | undefined): void {
  if (text === undefined) return;
  writer.token(specialTokenIds[name]);
  writer.text(text);
  writer.token(specialTokenIds.end);
}

/** Adjacent texts are one segment. */
function writeParts(writer: TokenWriter, parts: readonly ContentPart[]): void {
  let text = "";
  for (const part of parts) {
    if ("text" in part) {
      text += part.text;
      continue;
    }
    writer.text(text);
    text = "";
    writeImage(writer, hashText(part.image));
  }
  writer.text(text);
}

/** Tokens per image. */
const tokensPerImage = 256;

/** Placeholders that depend on the image, as SGLang's do. */
function writeImage(writer: TokenWriter, hash: number): void {
  for (let index = 0; index < tokensPerImage; index++) {
    const id = mixWord(hash + index);
    writer.token(id < firstPieceToken ? id + firstPieceToken : id);
  }
}

/**
 * Builds a prompt of tokens from texts and special tokens. A text is cut into pieces of four UTF-8 bytes, counted from
 * its start. A piece is the token whose id is those bytes as a big-endian number. Left-over bytes at the end, and
 * pieces whose number would collide with the ids below 512, become tokens of one byte each.
 */
type TokenWriter = ReturnType<typeof createTokenWriter>;

const pieceBytes = 4;

function createTokenWriter() {
  let tokens = new Uint32Array(256);
  let length = 0;

  const reserve = (more: number): void => {
    if (length + more <= tokens.length) return;
    const grown = new Uint32Array(Math.max(tokens.length * 2, length + more));
    grown.set(tokens.subarray(0, length));
    tokens = grown;
  };
  const token = (id: number): void => {
    reserve(1);
    tokens[length++] = id;
  };
  return {
    token,
    text(text: string): void {
      const bytes = Buffer.from(text, "utf8");
      const wholeBytes = bytes.length - (bytes.length % pieceBytes);
      // Capacity for the common case; a colliding piece takes four tokens and reserves them itself.
      reserve(wholeBytes / pieceBytes + pieceBytes);
      for (let at = 0; at < wholeBytes; at += pieceBytes) {
        const high = ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
        const id = ((high << 16) | ((bytes[at + 2] as number) << 8) | (bytes[at + 3] as number)) >>> 0;
        if (id >= firstPieceToken) tokens[length++] = id;
        else {
          reserve((wholeBytes - at) / pieceBytes + 2 * pieceBytes);
          for (let byte = at; byte < at + pieceBytes; byte++) tokens[length++] = bytes[byte] as number;
        }
      }
      for (let at = wholeBytes; at < bytes.length; at++) token(bytes[at] as number);
    },
    /** The tokens so far. */
    finish: (): Uint32Array => tokens.slice(0, length),
  };
}

/** The tokens of one text. */
function encodeText(text: string): Uint32Array {
  const writer = createTokenWriter();
  writer.text(text);
  return writer.finish();
}

/**
 * The text of tokens. The tokens of a text give exactly that text. For any other ids it is what their bytes say, with
 * U+FFFD where they are not UTF-8, and with special tokens by name.
 */
function decodeTokens(tokens: Iterable<number>): string {
  const parts: Buffer[] = [];
  for (const id of tokens) {
    if (id < firstSpecialToken) parts.push(Buffer.of(id));
    else if (id < firstPieceToken) parts.push(Buffer.from(specialTokenText(id), "utf8"));
    else parts.push(Buffer.of(id >>> 24, id >>> 16, id >>> 8, id));
  }
  return Buffer.concat(parts).toString("utf8");
}

/** First id of the special tokens; the ids below it are single bytes. */
const firstSpecialToken = 256;

/** Ids from here on are pieces of four bytes. */
const firstPieceToken = 512;

/** Tokens that the chat template puts between texts, in order of id. */
const specialTokenNames = ["system", "user", "assistant", "tool", "tools", "documents", "unknown", "end"] as const;

type SpecialToken = (typeof specialTokenNames)[number];

/** The id of each special token. */
const specialTokenIds = Object.fromEntries(
  specialTokenNames.map((name, index) => [name, firstSpecialToken + index]),
) as Readonly<Record<SpecialToken, number>>;

/** A special token in decoded text. Ids without a name appear as numbers. */
function specialTokenText(id: number): string {
  return `<|${specialTokenNames[id - firstSpecialToken] ?? id}|>`;
}
