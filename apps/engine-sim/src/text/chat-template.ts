import { createTokenWriter, type TokenWriter } from "./byte-tokens.ts";
import { firstPieceToken, type SpecialToken, specialTokenIds } from "./special-tokens.ts";
import { hashText, mixBits } from "./token-hash.ts";

/** Tokens that one image stands for. */
const tokensPerImage = 256;

/** A part of a message: text, or anything else by its bytes (an image as URL or base64). */
export type ContentPart = { readonly text: string } | { readonly image: string };

export interface ChatMessage {
  readonly role: string;
  readonly parts: readonly ContentPart[];
  /** JSON of the tool calls of an assistant's turn. */
  readonly toolCalls?: string;
}

export interface ChatPrompt {
  readonly messages: readonly ChatMessage[];
  /** JSON of the tools. */
  readonly tools?: string;
  /** JSON of the documents. */
  readonly documents?: string;
  /** The body of the request that all of it came in, and the endpoint's id; a chat completion unless that is given. */
  readonly body?: Readonly<Record<string, unknown>>;
  readonly endpoint?: "messages" | "responses";
}

const roles: Readonly<Record<string, SpecialToken>> = {
  system: "system",
  developer: "system",
  user: "user",
  assistant: "assistant",
  tool: "tool",
  function: "tool",
};

/**
 * The tokens of a conversation: tools and documents first, then each message between its role and an end. Texts are
 * segments of their own, so an answer that comes back as an assistant's turn gives the tokens that were generated.
 *
 * @param openTurn whether the assistant's next turn is opened at the end
 */
export function renderChat({ messages, tools, documents }: ChatPrompt, openTurn = true): Uint32Array {
  const writer = createTokenWriter();
  writeTurn(writer, "tools", tools);
  writeTurn(writer, "documents", documents);
  for (const { role, parts, toolCalls } of messages) {
    writer.token(specialTokenIds[(Object.hasOwn(roles, role) ? roles[role] : undefined) ?? "unknown"]);
    writeParts(writer, parts);
    if (toolCalls !== undefined) writer.text(toolCalls);
    writer.token(specialTokenIds.end);
  }
  if (openTurn) writer.token(specialTokenIds.assistant);
  return writer.finish();
}

function writeTurn(writer: TokenWriter, name: SpecialToken, text: string | undefined): void {
  if (text === undefined) return;
  writer.token(specialTokenIds[name]);
  writer.text(text);
  writer.token(specialTokenIds.end);
}

/** Neighbouring texts are one segment. */
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

/** Placeholders that depend on the image only, as an engine's hashes of multimodal inputs do. */
function writeImage(writer: TokenWriter, hash: number): void {
  for (let index = 0; index < tokensPerImage; index++) {
    const id = mixBits(hash + index);
    writer.token(id < firstPieceToken ? id + firstPieceToken : id);
  }
}
