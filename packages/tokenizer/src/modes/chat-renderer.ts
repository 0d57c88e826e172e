import type { Clock } from "@espalier/common";
import type { TokenizerFiles } from "../files/tokenizer-files.ts";
import { chatInputOf } from "../template/chat-input.ts";
import { type ChatTemplate, compileChatTemplate, type RenderedChat } from "../template/chat-template.ts";
import { selectTemplate, specialTokensOf } from "../template/select-template.ts";
import { TemplateError } from "../template/template-error.ts";
import type { PromptRequest } from "./prompt-request.ts";

/** Renders the prompts of chats by a model's own templates, each compiled once. */
export interface ChatRenderer {
  /**
   * @throws TemplateError when the model has no template, or it cannot render this chat
   */
  render(request: PromptRequest): RenderedChat;
}

/** @param clock for templates that write the date */
export function createChatRenderer(
  files: Pick<TokenizerFiles, "config" | "chatTemplate" | "additionalTemplates">,
  clock: Clock,
): ChatRenderer {
  const compiled = new Map<boolean, ChatTemplate>();
  const templateFor = (hasTools: boolean): ChatTemplate => {
    const known = compiled.get(hasTools);
    if (known) return known;
    const chatTemplate = files.chatTemplate ?? files.config.chat_template;
    const source = selectTemplate({ chatTemplate, additional: files.additionalTemplates, hasTools });
    if (source === undefined) throw new TemplateError("value", "the model's files have no chat template");
    const template = compileChatTemplate(source, { clock, specialTokens: specialTokensOf(files.config) });
    compiled.set(hasTools, template);
    return template;
  };
  return {
    render({ fields }) {
      const input = chatInputOf(fields);
      if (!input) throw new TemplateError("value", "the request has no messages");
      return templateFor(Boolean(input.tools)).renderChat(input);
    },
  };
}
