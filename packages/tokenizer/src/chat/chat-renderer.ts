import type { Clock, JsonObject } from "@espalier/core";
import { otherChatEndpoints, type PromptRequest } from "../prompt-request.ts";
import { TemplateError } from "../template/template-error.ts";
import { selectTemplate, specialTokensOf, type TokenizerFiles } from "../tokenizer-files.ts";
import { messagesChat, responsesChat } from "./api-chats.ts";
import { type ChatDialect, newestDialect } from "./chat-dialect.ts";
import { chatInputOf, exactFields } from "./chat-input.ts";
import { type ChatTemplate, type ChatTerms, compileChatTemplate, type RenderedChat } from "./chat-template.ts";

export interface ChatTermsOfModel {
  readonly template: ChatTemplate;
  readonly terms: ChatTerms;
}

/** Renders the prompts of chats by a model's own templates, each compiled once. */
export type ChatRenderer = ReturnType<typeof createChatRenderer>;

/** @param clock for templates that write the date */
export function createChatRenderer(
  files: Pick<TokenizerFiles, "config" | "chatTemplate" | "additionalTemplates">,
  clock: Clock,
) {
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
  const probe = (body: JsonObject): string | undefined => {
    try {
      return templateFor(false).render(chatInputOf(body, newestDialect)!);
    } catch (error) {
      if (error instanceof TemplateError) return undefined;
      throw error;
    }
  };
  const refusesSystem = lazy(() => probe({ messages: systemBetween, add_generation_prompt: false }) === undefined);
  const disabledEffort = lazy(() => {
    const promptOf = (effort: string) =>
      probe({ messages: [{ role: "user", content: "Hi" }], reasoning_effort: effort });
    const none = promptOf("none");
    return none === undefined || efforts.some((effort) => promptOf(effort) === none) ? "low" : "none";
  });
  const fieldsOf = ({ endpoint, fields, dialect = newestDialect }: PromptRequest): JsonObject | undefined => {
    if (dialect === "sglang-0.5.23") return undefined;
    if (endpoint === "responses") return responsesChat(fields);
    return messagesChat(fields, { mergesSystem: dialect === "vllm-0.23" || refusesSystem(), disabledEffort });
  };
  return {
    /** @throws TemplateError when the model has no template, or the template cannot render this chat */
    render(request: PromptRequest): RenderedChat {
      const input = chatInputOf(exactFields(request), request.dialect);
      if (!input) throw new TemplateError("value", "the request has no messages");
      return templateFor(Boolean(input.tools)).renderChat(input);
    },
    /**
     * The fields of a chat, besides the messages, that its prompt depends on, and its template.
     *
     * @returns undefined for chats that are rendered as a whole
     */
    terms(fields: JsonObject, dialect: ChatDialect): ChatTermsOfModel | undefined {
      try {
        const input = chatInputOf({ ...fields, messages: [] }, dialect)!;
        const template = templateFor(Boolean(input.tools));
        const terms = template.terms(input);
        return terms && { template, terms };
      } catch (error) {
        if (error instanceof TemplateError) return undefined;
        throw error;
      }
    },
    /**
     * The chat to which an engine converts a request of another API; a chat is returned as it is.
     *
     * @returns undefined when the engine's conversion is unknown
     */
    asChat(request: PromptRequest): PromptRequest | undefined {
      if (!otherChatEndpoints.has(request.endpoint)) return request;
      const fields = fieldsOf({ ...request, fields: exactFields(request) });
      // The body's bytes are of another form.
      return fields && { ...request, endpoint: "chat", fields, body: undefined };
    },
  };
}

/** vLLM renders these to find out whether a template accepts later system messages. */
const systemBetween = ["system", "user", "system", "user"].map((role) => ({ role, content: "t" }));
/** If the prompt for `none` equals that for one of these efforts, the template does not know `none`. */
const efforts = ["low", "medium", "high", "xhigh", "max"];

function lazy<Value>(make: () => Value): () => Value {
  let made: { readonly value: Value } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
