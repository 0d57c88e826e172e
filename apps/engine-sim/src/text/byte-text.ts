import { createTokenWriter, decodeTokens, encodeText } from "./byte-tokens.ts";
import { renderChat } from "./chat-template.ts";
import { byteWords } from "./generated-text.ts";
import type { ModelText } from "./model-text.ts";
import { specialTokenIds } from "./special-tokens.ts";

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
