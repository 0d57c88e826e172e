import type { Clock } from "@espalier/common";
import { loadTokenizerFiles } from "../files/tokenizer-files.ts";
import { createTextTokenizer } from "../text/text-tokenizer.ts";
import { createChatRenderer } from "./chat-renderer.ts";
import { type PromptRequest, type PromptSource, promptSource, wantsSpecialTokens } from "./prompt-request.ts";

/**
 * The tokens of a request's prompt, all of them, as an engine with these files would have them.
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
