import type { JsonObject } from "@espalier/core";
import type { CacheFlavour, RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { optionalBoolean, optionalObject, unquoteLongIntegers } from "../http/body-fields.ts";
import type { AnswerFormat } from "../serving/answer.ts";
import { deliver } from "../serving/deliver.ts";
import type { ToolCall } from "../text/written-text.ts";
import type { LogprobsOf } from "./logprobs.ts";
import { type PlanInput, planLeg, planSequences } from "./planning.ts";

/**
 * The differences between the answers of the OpenAI endpoints. Parts of chunks are JSON from inside `choices` up to the
 * usage or the end of the chunk.
 */
export interface OpenAiShape {
  readonly objectName: string;
  readonly chunkObjectName: string;
  /** The first chunk of a sequence; empty for none. */
  opening(index: number): string;
  /** The JSON around the text of a token. @param delta the JSON around it within a chat's `delta` */
  chunk(index: number, finishReason: string | null, delta: Delta): readonly [before: string, after: string];
  /** A separate last chunk, for engines that send the reason after the last text. */
  readonly closing?: (index: number, finishReason: string) => string;
  /** The end of a chunk without usage. */
  readonly chunkEnd: string;
  /** An element of `choices` of a whole answer. */
  choice(index: number, content: Content, finishReason: string): JsonObject;
  /** Fields after `usage` of a whole answer. */
  tail(completionTokens: number): JsonObject;
  readonly reportsCreatedTokens: boolean;
}

type Delta = readonly [open: string, close: string];

/** What an assistant's message is: text, or calls of tools. */
interface Content {
  readonly content: string | null;
  readonly tool_calls?: readonly JsonObject[];
}

interface OpenAiRequest extends PlanInput {
  readonly model: string;
  /** @throws ApiError 400 when the fields are malformed */
  logprobs(): LogprobsOf | undefined;
  /** Of vLLM's ids. */
  readonly idPrefix: string;
  readonly shapes: Readonly<Record<CacheFlavour, OpenAiShape>>;
}

/**
 * Computes a chat or text completion, and sends the answer.
 *
 * @throws ApiError as `planSequences`, `planLeg` and `deliver` do, and 400 when `stream_options` is malformed
 */
export function answerOpenAi(request: OpenAiRequest): void {
  const { context, exchange, body, model } = request;
  const { sequences, leg } = planLeg(context, exchange, body, planSequences(request));
  const format = openAiFormat(request, sequences);
  deliver(context, exchange, { model, stream: optionalBoolean(body, "stream") ?? false, sequences, format, leg });
}

const systemFingerprint = "vllm-0.32.0-simulated";

/**
 * The format of a chat or text completion. Strings around the generated words are made once per request.
 *
 * @throws ApiError 400 when `stream_options` is malformed
 */
function openAiFormat(request: OpenAiRequest, sequences: readonly SequenceRequest[]): AnswerFormat {
  const { context, exchange, model, body, prompts, idPrefix } = request;
  const { flavour, clock, engine } = context;
  const shape = request.shapes[flavour];
  const logprobs = request.logprobs();
  const returnsIds = optionalBoolean(body, "return_token_ids") ?? false;
  const choicesPerPrompt = sequences.length / prompts.length;
  const id = flavour === "vllm" ? `${idPrefix}-${exchange.requestId}` : context.newId() + context.newId();
  const options = optionalObject(body, "stream_options") ?? {};
  const includesUsage = optionalBoolean(options, "include_usage") ?? false;
  const continuousUsage = includesUsage && (optionalBoolean(options, "continuous_usage_stats") ?? false);
  const created = Math.floor(clock.wallMs() / 1000);
  const origin = flavour === "vllm" ? { service_tier: null, system_fingerprint: systemFingerprint } : {};
  // In the chunk that is last: the one of usage, or the one with the reason (vllm/entrypoints/openai/chat_completion/serving.py).
  const stamp = flavour === "vllm" ? `,"system_fingerprint":"${systemFingerprint}"` : "";
  const reasonStamp = includesUsage ? "" : stamp;
  const identity = { id, object: shape.objectName, created, model };
  const head = `data: ${JSON.stringify({ ...identity, object: shape.chunkObjectName }).slice(0, -1)},"choices":[`;
  const parts = sequences.map((sequence, index) => {
    const last = shape.closing ? null : reasonOf(sequence);
    const delta = sequence.text.call ? argumentsDelta : contentDelta;
    return { sequence, middle: shape.chunk(index, null, delta), last: shape.chunk(index, last, delta) };
  });
  const withLogprobs = (after: string, { text }: SequenceRequest, index: number): string =>
    logprobs
      ? after.replace(noLogprobs, () => `"logprobs":${JSON.stringify(logprobs(text, index, index + 1))}`)
      : after;
  const withIds = (json: string, name: string, ids: Iterable<number>): string =>
    returnsIds ? json.replace(`"${name}":null`, () => `"${name}":[${[...ids].join(",")}]`) : json;
  const usage = (reports: readonly RequestReport[]) => {
    const counts = countTokens(reports, choicesPerPrompt);
    return usageObject(
      flavour,
      counts,
      shape.reportsCreatedTokens ? createdTokens(counts, engine.parameters.blockSize) : null,
    );
  };
  const hasTimings = context.behaviours.has("llama.cpp-00efb3e:timings");
  const chunkEnd = ({ prompt }: SequenceRequest, tokens: number): string =>
    continuousUsage
      ? `,"usage":{"prompt_tokens":${prompt.length},"total_tokens":${prompt.length + tokens},"completion_tokens":${tokens}}}\n\n`
      : shape.chunkEnd;

  return {
    token(at, index) {
      const { sequence, middle, last } = parts[at] as (typeof parts)[number];
      const isLast = index === sequence.outputTokens - 1;
      const { text } = sequence;
      const isHeader = index === 0 && text.call;
      const [before, after] = isHeader
        ? shape.chunk(at, isLast && !shape.closing ? reasonOf(sequence) : null, callDelta(text.call))
        : isLast
          ? last
          : middle;
      const end = (isLast ? reasonStamp : "") + chunkEnd(sequence, index + 1);
      const ids = withIds(withLogprobs(after, sequence, index), "token_ids", [text.token(index)]);
      const opening = index === 0 ? withIds(shape.opening(at), "prompt_token_ids", sequence.prompt) : "";
      const described = index === 0 && opening === "" ? withIds(ids, "prompt_token_ids", sequence.prompt) : ids;
      let events = `${head}${before}${text.inJson(index)}${described}${end}`;
      if (opening !== "") events = `${head}${opening}${chunkEnd(sequence, 0)}${events}`;
      if (isLast && shape.closing) events += `${head}${shape.closing(at, reasonOf(sequence))}${end}`;
      return events;
    },
    end(reports) {
      if (!includesUsage) return "data: [DONE]\n\n";
      const finalUsage = JSON.stringify(usage(reports), flavour === "vllm" ? withoutNull : undefined);
      const timed = hasTimings ? `,"timings":${JSON.stringify(timingsOf(reports))}` : "";
      return `${head}],"usage":${finalUsage}${stamp}${timed}}\n\ndata: [DONE]\n\n`;
    },
    whole(reports, { top, choice }) {
      const choices = sequences.map((sequence, index) => ({
        ...shape.choice(index, contentOf(sequence), reasonOf(sequence)),
        ...(returnsIds && { token_ids: sequence.text.tokens(sequence.outputTokens) }),
        ...(logprobs && { logprobs: logprobs(sequence.text, 0, sequence.outputTokens) }),
        ...choice,
      }));
      const total = usage(reports);
      const tail = {
        ...shape.tail(total.completion_tokens),
        ...(hasTimings && { timings: timingsOf(reports) }),
        ...top,
      };
      const body = { ...identity, choices, ...origin, usage: total, ...tail };
      return choice ? unquoteLongIntegers(JSON.stringify(body)) : JSON.stringify(body);
    },
    empty(finishReason) {
      const { prompt } = sequences[0] as SequenceRequest;
      const total = usageObject(flavour, { prompt: prompt.length, cached: 0, completion: 0 }, null);
      const choices = [shape.choice(0, { content: "" }, finishReason)];
      const [before, after] = shape.chunk(0, finishReason, contentDelta);
      return {
        whole: JSON.stringify({ ...identity, choices, ...origin, usage: total, ...shape.tail(0) }),
        events: `${head}${before}${after}${reasonStamp}${shape.chunkEnd}data: [DONE]\n\n`,
      };
    },
  };
}

/** llama.cpp's, of the first sequence. */
function timingsOf([report]: readonly RequestReport[]) {
  const { promptTokens = 0, cachedTokens = 0, outputTokens = 0 } = report ?? {};
  const { scheduledMs = 0, firstTokenMs = 0, finishedMs = 0 } = report ?? {};
  const pace = (name: string, tokens: number, ms: number) => ({
    [`${name}_n`]: tokens,
    [`${name}_ms`]: ms,
    [`${name}_per_token_ms`]: tokens > 0 ? ms / tokens : 0,
    [`${name}_per_second`]: ms > 0 ? (1_000 * tokens) / ms : 0,
  });
  return {
    cache_n: cachedTokens,
    ...pace("prompt", promptTokens - cachedTokens, firstTokenMs - scheduledMs),
    ...pace("predicted", outputTokens, finishedMs - firstTokenMs),
  };
}

const noLogprobs = '"logprobs":null';

const contentDelta: Delta = ['"content":"', '"'];
const argumentsDelta: Delta = ['"tool_calls":[{"index":0,"function":{"arguments":"', '"}}]'];

/** Around the empty beginning of a call's arguments. */
function callDelta({ id, name }: ToolCall): Delta {
  const call = `"index":0,"id":"${id}","type":"function","function":{"name":${JSON.stringify(name)},"arguments":"`;
  return [`"tool_calls":[{${call}`, '"}}]'];
}

function reasonOf({ text, finishReason }: SequenceRequest): string {
  return finishReason === "stop" && text.call ? text.call.endReason : finishReason;
}

function contentOf({ text, outputTokens }: SequenceRequest): Content {
  const written = text.text(outputTokens);
  if (!text.call) return { content: written };
  const { id, name } = text.call;
  return { content: null, tool_calls: [{ id, type: "function", function: { name, arguments: written } }] };
}

/** vLLM omits null fields in streams. */
const withoutNull = (_key: string, value: unknown): unknown => value ?? undefined;

/** SGLang's versions of the weights that made each run of tokens. */
export function sglangTail(completionTokens: number): JsonObject {
  const weight_version = "default";
  return {
    metadata: { weight_version, weight_versions: [{ version: weight_version, start: 0, end: completionTokens }] },
  };
}

/** Tokens of one answer, as usage counts them. */
interface TokenCounts {
  readonly prompt: number;
  readonly cached: number;
  readonly completion: number;
}

/** Adds up the sequences of a request: each prompt counts once, however many answers it got. */
function countTokens(reports: readonly RequestReport[], choicesPerPrompt: number): TokenCounts {
  let prompt = 0;
  let cached = 0;
  let completion = 0;
  for (const [at, report] of reports.entries()) {
    completion += report.outputTokens;
    if (at % choicesPerPrompt !== 0) continue;
    prompt += report.promptTokens;
    cached += report.cachedTokens;
  }
  return { prompt, cached, completion };
}

/**
 * The `usage` object of the OpenAI endpoints, with the fields that vLLM 0.32 and SGLang 0.5 fill.
 *
 * @param createdCacheTokens prompt tokens that this request put into the cache; vLLM reports it for chats only
 */
function usageObject(flavour: CacheFlavour, counts: TokenCounts, createdCacheTokens: number | null) {
  const { prompt, cached, completion } = counts;
  const totals = { prompt_tokens: prompt, total_tokens: prompt + completion, completion_tokens: completion };
  if (flavour === "sglang") {
    return {
      ...totals,
      prompt_tokens_details: { cached_tokens: cached },
      reasoning_tokens: 0,
      completion_tokens_details: null,
    };
  }
  return {
    ...totals,
    prompt_tokens_details: {
      cached_tokens: cached,
      created_cache_tokens: createdCacheTokens,
      multimodal_tokens: null,
    },
    completion_tokens_details: null,
  };
}

/** Full blocks of a prompt that its request put into the cache. */
function createdTokens({ prompt, cached }: TokenCounts, blockSize: number): number {
  return Math.max(0, prompt - (prompt % blockSize) - cached);
}
