import { type JsonObject, mixWord } from "@espalier/core";
import type { MediaRange } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { optionalBoolean, optionalInteger, optionalString } from "../http/body-fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { ApiError, wrongField } from "../http/exchange.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import { type ContinuedText, continueText, findContinuedText } from "../text/continued-text.ts";
import { createGeneratedText, hashTokens, naturalLength } from "../text/generated-text.ts";
import type { Leg } from "../transfer/leg.ts";
import type { AnswerWriter } from "./structured-answers.ts";

/** Limit of an answer when the caller gives none. */
const defaultOutputTokens = 128;

/** Words of an answer to an agent. */
const agentAnswerTokens = 64;

/** Number of answers to one prompt. */
const maxChoices = 128;

export interface PlanInput {
  readonly context: EngineContext;
  readonly exchange: Exchange;
  readonly body: JsonObject;
  readonly prompts: readonly Uint32Array[];
  /** Images, audio and videos in each of them; none by default. */
  readonly media?: readonly MediaRange[];
  /**
   * The beginning of the answer, if the prompt ends with one: what was before it, and its text; or that nothing says
   * where it begins.
   */
  readonly begun?: { readonly prompt: Uint32Array; readonly text: string } | "unmarked" | undefined;
  /** The caller's limit on the tokens of the answer. */
  readonly outputLimit: number | undefined;
  /** Where the sampling options are, when not in the body itself. */
  readonly sampling?: JsonObject;
  /** Writes the answers, unless a header sets their length; without it they are words. */
  readonly write?: AnswerWriter | undefined;
}

/** The only sequence of an API that gives one answer to a request. @throws ApiError as `planSequences` does */
export function planSequence({ prompt, ...input }: Omit<PlanInput, "prompts"> & { readonly prompt: Uint32Array }) {
  const [sequence] = planSequences({ ...input, body: { ...input.body, n: 1 }, prompts: [prompt] });
  return sequence!;
}

/**
 * The sequences to compute: `n` for each prompt, in order of the prompts.
 *
 * @throws ApiError 400 when an option is malformed or a prompt does not fit the model
 */
export function planSequences(input: PlanInput) {
  const { context, exchange, body, prompts, media, outputLimit, sampling = body, write } = input;
  const choices = optionalInteger(sampling, "n", 1, maxChoices) ?? 1;
  const seed = optionalInteger(sampling, "seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER) ?? 0;
  const ignoreEos = optionalBoolean(sampling, "ignore_eos") ?? false;
  const cacheSalt = optionalString(body, "cache_salt");
  const adapter = adapterOf(context, exchange, body);
  const priority = priorityOf(context, body);
  const forced = forcedLength(exchange);
  const sequences: SequenceRequest[] = [];
  for (const prompt of prompts) {
    checkPrompt(context, prompt);
    const wantedAfter = (source: Uint32Array): number =>
      forced ?? (ignoreEos ? Number.POSITIVE_INFINITY : naturalTokens(context, body, source));
    const promptHash = hashTokens(prompt);
    for (let choice = 0; choice < choices; choice++) {
      const shared = { prompt, ...(media && { media }), pooling: false, cacheSalt, adapter, priority };
      if (write && forced === undefined) {
        const text = write((mixWord(promptHash ^ mixWord(seed)) ^ mixWord(choice)) >>> 0);
        const limit = outputLimit ?? context.engine.parameters.maxModelLength - prompt.length;
        sequences.push({ ...shared, text, ...outputLength(context, prompt.length, limit, text.length, false) });
      } else {
        const { words } = context.text;
        const continued = continuedText(input, prompt, { words, seed, choice });
        const left = continued ? wantedAfter(continued.prompt) - continued.words : 0;
        const text = left > 0 ? continued!.text : createGeneratedText({ words, promptHash, seed, choice });
        const wanted = left > 0 ? left : wantedAfter(prompt);
        const limit = outputLimit ?? (left > 0 ? Math.max(1, defaultOutputTokens - continued!.words) : undefined);
        const length = outputLength(context, prompt.length, limit, wanted, forced !== undefined);
        sequences.push({ ...shared, text, ...length });
      }
    }
  }
  return sequences;
}

function continuedText(
  { context, begun }: PlanInput,
  prompt: Uint32Array,
  sampling: Parameters<typeof findContinuedText>[1],
): ContinuedText | undefined {
  if (begun === "unmarked") return findContinuedText(prompt, sampling);
  return begun && continueText(begun.prompt, begun.text, sampling, (text) => context.text.text(text, false));
}

/**
 * The sequences to compute, with the engine that they pull from, and this engine's part in a request that several engines
 * work on. An engine that only computes the prompt for another one generates one token,
 * regardless of what the request asks for.
 *
 * @throws ApiError 400 when its fields make no sense
 */
export function planLeg(
  { transfers, peers }: EngineContext,
  exchange: Exchange,
  body: JsonObject,
  sequences: readonly SequenceRequest[],
): { readonly sequences: readonly SequenceRequest[]; readonly leg: Leg | undefined } {
  const leg = transfers?.legOf(exchange, body, sequences);
  if (peers) return { sequences: peers.withSource(body, sequences), leg };
  if (!leg?.onlyPrompt) return { sequences, leg };
  return { sequences: sequences.map((each) => ({ ...each, outputTokens: 1, finishReason: "length" })), leg };
}

/**
 * One sequence per input that only computes the prompt, as embeddings and scores do.
 *
 * @throws ApiError 400 when an input does not fit the model
 */
export function planPooling(
  context: EngineContext,
  exchange: Exchange,
  body: JsonObject,
  prompts: readonly Uint32Array[],
): SequenceRequest[] {
  const adapter = adapterOf(context, exchange, body);
  return prompts.map((prompt) => {
    checkPrompt(context, prompt);
    const text = createGeneratedText({ words: context.text.words, promptHash: hashTokens(prompt), seed: 0, choice: 0 });
    return {
      prompt,
      outputTokens: 1,
      finishReason: "stop",
      text,
      pooling: true,
      cacheSalt: undefined,
      adapter,
      priority: undefined,
    };
  });
}

/** In vLLM a lower value goes first, in SGLang a higher one; the model knows vLLM's order. */
function priorityOf({ flavour }: EngineContext, body: JsonObject): number | undefined {
  const priority = optionalInteger(body, "priority", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
  return priority !== undefined && flavour === "sglang" ? -priority : priority;
}

/**
 * Where an answer of words ends by itself. A chat with tools does so even when answers have no natural length: agents
 * set limits of thousands of tokens, and take an answer that is cut for a failure.
 */
function naturalTokens({ naturalLengthMean }: EngineContext, body: JsonObject, prompt: Uint32Array): number {
  if (naturalLengthMean > 0) return naturalLength(prompt, naturalLengthMean);
  return Array.isArray(body.tools) && body.tools.length > 0 ? agentAnswerTokens : Number.POSITIVE_INFINITY;
}

/** The header with which a replayed trace sets the length of an answer. It overrides every limit. */
function forcedLength({ request }: Exchange): number | undefined {
  const value = request.headers["x-sim-output-tokens"];
  if (value === undefined) return undefined;
  const tokens = Number(value);
  if (Number.isInteger(tokens) && tokens >= 1) return tokens;
  throw wrongField("x-sim-output-tokens", "a whole number from 1");
}

function checkPrompt({ engine, flavour }: EngineContext, prompt: Uint32Array): void {
  const { maxModelLength } = engine.parameters;
  if (prompt.length === 0) throw new ApiError(400, "The prompt must not be empty.", "prompt");
  if (prompt.length < maxModelLength) return;
  throw flavour === "sglang"
    ? new ApiError(
        400,
        `The input (${prompt.length} tokens) is longer than the model's context length (${maxModelLength} tokens).`,
      )
    : new ApiError(
        400,
        `This model's maximum context length is ${maxModelLength} tokens. However, your prompt contains ` +
          `${prompt.length} input tokens, which leaves no room for output tokens. Please reduce the length of the ` +
          `input prompt. (parameter=input_tokens, value=${prompt.length})`,
        "input_tokens",
      );
}

function outputLength(
  { engine }: EngineContext,
  promptTokens: number,
  limit: number | undefined,
  wantedTokens: number,
  forced: boolean,
): Pick<SequenceRequest, "outputTokens" | "finishReason"> {
  const { maxModelLength } = engine.parameters;
  const availableTokens = maxModelLength - promptTokens;
  const asked = forced ? wantedTokens : limit;
  if (asked !== undefined && asked > availableTokens) {
    throw new ApiError(
      400,
      `'max_tokens' or 'max_completion_tokens' is too large: ${asked}. This model's maximum context length is ` +
        `${maxModelLength} tokens and your request has ${promptTokens} input tokens (${asked} > ${maxModelLength} - ` +
        `${promptTokens}). (parameter=max_tokens, value=${asked})`,
      "max_tokens",
    );
  }
  const most = limit ?? Math.min(defaultOutputTokens, availableTokens);
  if (forced) return { outputTokens: wantedTokens, finishReason: wantedTokens < most ? "stop" : "length" };
  return wantedTokens < most
    ? { outputTokens: wantedTokens, finishReason: "stop" }
    : { outputTokens: most, finishReason: "length" };
}

/**
 * The limit on the tokens of an answer, under the first of `names` that the body has; undefined for none.
 *
 * @throws ApiError 400 when it is not a whole number from 1
 */
export function outputLimit(
  { behaviours }: Pick<EngineContext, "behaviours">,
  body: JsonObject,
  ...names: readonly string[]
): number | undefined {
  const isEndless = behaviours.has("llama.cpp-00efb3e:endless-answers");
  for (const name of names) {
    if (isEndless && body[name] === -1) return undefined;
    const limit = optionalInteger(body, name, 1, Number.MAX_SAFE_INTEGER);
    if (limit !== undefined) return limit;
  }
  return undefined;
}

/**
 * Paths of SGLang 0.5.23 that take an adapter by some fields only. `anthropic/serving.py` builds a chat request without
 * `lora_path`, `GenerateReqInput` has no model, and no adapter reaches the engine from `openai/serving_responses.py`,
 * `serving_rerank.py` and `serving_score.py`: the base model answers.
 */
const adapterFields: Readonly<Record<string, readonly string[]>> = {
  "/v1/messages": ["model"],
  "/generate": ["lora_path"],
  "/v1/responses": [],
  "/v1/rerank": [],
  "/v1/score": [],
};

/**
 * The LoRA adapter of a request. vLLM takes it from the model's name; SGLang from the part after a colon there,
 * else from `lora_path` (`_resolve_lora_path` of `entrypoints/openai/serving_base.py`).
 *
 * @throws ApiError 400 when SGLang has not loaded it
 */
function adapterOf({ flavour, adapters }: EngineContext, { path }: Exchange, body: JsonObject): string | undefined {
  if (flavour !== "sglang") return adapters.names.find((name) => name === body.model);
  const fields = adapterFields[path] ?? ["model", "lora_path"];
  const [, named] = (fields.includes("model") && /:(.+)/.exec(optionalString(body, "model") ?? "")) || [];
  const adapter = named?.trim() || (fields.includes("lora_path") ? optionalString(body, "lora_path") : undefined);
  if (adapter === undefined || adapters.names.includes(adapter)) return adapter;
  const loaded = adapters.names.join(", ");
  throw new ApiError(
    400,
    `The following requested LoRA adapters are not loaded: ${adapter}\nLoaded adapters: ${loaded}.`,
  );
}

/**
 * The model name in the request; the first one for none and for an empty one, as vLLM has it. SGLang serves any name.
 *
 * @throws ApiError 404 when this engine does not serve it
 */
export function modelOf({ flavour, models, adapters }: EngineContext, body: JsonObject): string {
  const model = optionalString(body, "model") || models[0];
  if (flavour === "sglang" || models.includes(model) || adapters.names.includes(model)) return model;
  const known = [...models, ...adapters.names].join(", ");
  throw new ApiError(404, `The model \`${model}\` does not exist. Valid aliases: ${known}.`, "model");
}
