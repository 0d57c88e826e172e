import { missingField, wrongField } from "../http/api-error.ts";
import type { EngineContext } from "../http/engine-context.ts";
import { type Exchange, sendJson } from "../http/exchange.ts";
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
      ? context.text.chat(chatPromptOf(body), optionalBoolean(body, "add_generation_prompt") ?? true)
      : context.text.text(prompt, optionalBoolean(body, "add_special_tokens") ?? true);
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
  const text = context.text.decode(tokens);
  sendJson(exchange, 200, context.flavour === "sglang" ? { text } : { prompt: text });
}
