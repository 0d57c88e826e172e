import { createHash } from "node:crypto";
import type { Prompt, TraceRequest } from "@espalier/workload";
import type { Conversation } from "./conversation.ts";
import { blockTokens } from "./workload.ts";

/** Bytes of text that make a token, as readers of traces count them. */
const bytesPerToken = 4;
const pieceBytes = blockTokens * bytesPerToken;

/**
 * Adds the text of a prompt, a block at a time, so that prompts that begin alike share blocks as far as their bytes
 * are the same. The roles of messages do not count, as they do not count as tokens.
 */
export function sharePrompt(prompt: Prompt, { inputTokens }: TraceRequest, conversation: Conversation): void {
  const bytes = Buffer.from(textOf(prompt));
  let left = inputTokens;
  for (let at = 0; left > 0; at += pieceBytes) {
    const tokens = Math.min(blockTokens, left);
    conversation.share(nameOf(bytes.subarray(at, at + pieceBytes)), tokens);
    left -= tokens;
  }
}

function textOf(prompt: Prompt): string {
  if (typeof prompt === "string") return prompt;
  const contents = prompt.map(({ content }) => content ?? "");
  return contents.map((content) => (typeof content === "string" ? content : JSON.stringify(content))).join("");
}

/** 48 bits of the content: two different pieces out of a million have the same name with odds of 1 in 500. */
function nameOf(piece: Buffer): number {
  return createHash("sha256").update(piece).digest().readUIntLE(0, 6);
}
