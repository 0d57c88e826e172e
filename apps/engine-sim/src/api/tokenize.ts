import { missingField, wrongField } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";
import { decodeTokens, encodeText } from "../text/byte-tokens.ts";
import { renderChat } from "../text/chat-template.ts";
import { type JsonObject, optionalBoolean, optionalString, tokenIds } from "./body-fields.ts";
import { chatPromptOf } from "./chat.ts";
import { modelOf } from "./planning.ts";

/** `POST /tokenize`: the tokens of a `prompt`, or of `messages` as the chat endpoint would see them. */
export function tokenize(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  modelOf(context, body);
  const prompt = optionalString(body, "prompt");
  if (prompt === undefined && (body.messages ?? undefined) === undefined) throw missingField("prompt");
  const tokens =
    prompt === undefined
      ? renderChat(chatPromptOf(body), optionalBoolean(body, "add_generation_prompt") ?? true)
      : encodeText(prompt);
  sendJson(exchange, 200, {
    count: tokens.length,
    max_model_len: context.engine.parameters.maxModelLength,
    tokens: Array.from(tokens),
    token_strs: null,
  });
}

/** `POST /detokenize`: the text of `tokens`. */
export function detokenize(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  modelOf(context, body);
  const ids = body.tokens;
  if (ids === undefined) throw missingField("tokens");
  const tokens = Array.isArray(ids) && ids.length === 0 ? new Uint32Array() : tokenIds(ids);
  if (!tokens) throw wrongField("tokens", "a list of token ids");
  const text = decodeTokens(tokens);
  sendJson(exchange, 200, context.flavour === "sglang" ? { text } : { prompt: text });
}
