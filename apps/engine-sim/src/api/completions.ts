import type { JsonObject } from "@espalier/core";
import { maxInputs, optionalBoolean, required, tokenIds } from "../http/body-fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { wrongField } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import { completionLogprobs } from "./logprobs.ts";
import { answerOpenAi, type OpenAiShape, sglangTail } from "./openai-format.ts";
import { modelOf, outputLimit } from "./planning.ts";
import { jsonAnswer } from "./structured-answers.ts";

const vllmShape: OpenAiShape = {
  objectName: "text_completion",
  chunkObjectName: "text_completion",
  opening: () => "",
  chunk: (index, finishReason) => [
    `{"index":${index},"text":"`,
    `","logprobs":null,"finish_reason":${JSON.stringify(finishReason)},"stop_reason":null,"prompt_token_ids":null,` +
      `"token_ids":null}]`,
  ],
  chunkEnd: "}\n\n",
  choice: (index, { content }, finishReason) => ({
    index,
    text: content ?? "",
    logprobs: null,
    finish_reason: finishReason,
    stop_reason: null,
    token_ids: null,
    prompt_logprobs: null,
    prompt_token_ids: null,
    routed_experts: null,
  }),
  tail: () => ({ kv_transfer_params: null, ec_transfer_params: null, metrics: null }),
  reportsCreatedTokens: false,
};

const sglangShape: OpenAiShape = {
  objectName: "text_completion",
  chunkObjectName: "text_completion",
  opening: () => "",
  chunk: (index, finishReason) => [
    `{"index":${index},"text":"`,
    `","logprobs":null,"finish_reason":${JSON.stringify(finishReason)},"matched_stop":null}]`,
  ],
  chunkEnd: ',"usage":null}\n\n',
  choice: (index, { content }, finishReason) => ({
    index,
    text: content ?? "",
    logprobs: null,
    finish_reason: finishReason,
    matched_stop: null,
  }),
  tail: sglangTail,
  reportsCreatedTokens: false,
};

/** `POST /v1/completions` */
export function completions(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  const prompts = promptsOf(context, body, "prompt");
  answerOpenAi({
    ...{ context, exchange, body, model, prompts, begun: "unmarked" as const },
    outputLimit: outputLimit(context, body, "max_tokens"),
    write: jsonAnswer(context.text, body),
    logprobs: () => completionLogprobs(context.text.words, body),
    ...{ idPrefix: "cmpl", shapes: { vllm: vllmShape, sglang: sglangShape } },
  });
}

/**
 * The tokens of each prompt in a field: of a text, of token ids, or of a list of either.
 *
 * @throws ApiError 400 when it is absent, of another type, or a list of more than `maxInputs`
 */
export function promptsOf({ text }: EngineContext, body: JsonObject, name: string): Uint32Array[] {
  const addSpecialTokens = optionalBoolean(body, "add_special_tokens") ?? true;
  const encode = (source: string): Uint32Array => text.text(source, addSpecialTokens);
  const prompt = required(body[name] ?? undefined, name);
  if (typeof prompt === "string") return [encode(prompt)];
  const ids = tokenIds(prompt);
  if (ids) return [ids];
  if (Array.isArray(prompt) && prompt.length > 0 && prompt.length <= maxInputs) {
    return prompt.map((each) => {
      const tokens = typeof each === "string" ? encode(each) : tokenIds(each);
      if (!tokens) throw wrongField(name, "a string, token ids, or a list of either");
      return tokens;
    });
  }
  throw wrongField(name, `a string, token ids, or a list of 1 to ${maxInputs} of either`);
}
