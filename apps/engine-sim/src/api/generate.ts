import type { JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { optionalBoolean, optionalObject, textList, tokenIds } from "../http/body-fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { missingField, wrongField } from "../http/exchange.ts";
import type { AnswerFormat } from "../serving/answer.ts";
import { deliver } from "../serving/deliver.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import { tokenLogprobs } from "./logprobs.ts";
import { modelOf, outputLimit, planLeg, planSequences } from "./planning.ts";

/** `POST /generate`, SGLang's own API: `text` or `input_ids`, each one or a list. */
export function generate(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  const { prompts, isBatch } = promptsOf(context, body);
  const sampling = optionalObject(body, "sampling_params") ?? {};
  const limit = outputLimit(context, sampling, "max_new_tokens");
  const planned = planSequences({ context, exchange, body, prompts, outputLimit: limit, sampling });
  const { sequences, leg } = planLeg(context, exchange, body, planned);
  const rid = typeof body.rid === "string" ? body.rid : undefined;
  const ids = sequences.map(() => rid ?? context.newId() + context.newId());
  const parts = { context, ids, sequences, hasLogprobs: optionalBoolean(body, "return_logprob") ?? false };
  const format = generateFormat(parts, isBatch || sequences.length > 1);
  deliver(context, exchange, { model, rid, stream: optionalBoolean(body, "stream") ?? false, sequences, format, leg });
}

function promptsOf(
  context: EngineContext,
  body: JsonObject,
): { readonly prompts: Uint32Array[]; readonly isBatch: boolean } {
  const { text, input_ids: ids } = body;
  if (text !== undefined && text !== null) {
    return { prompts: textList(body, "text").map((each) => context.text.text(each)), isBatch: Array.isArray(text) };
  }
  if (ids === undefined || ids === null) throw missingField("text");
  const single = tokenIds(ids);
  if (single) return { prompts: [single], isBatch: false };
  const several = Array.isArray(ids) ? ids.map(tokenIds).filter((tokens) => tokens !== undefined) : [];
  if (several.length === 0 || several.length !== (ids as unknown[]).length) {
    throw wrongField("input_ids", "token ids or a list of them");
  }
  return { prompts: several, isBatch: true };
}

interface FormatParts {
  readonly context: EngineContext;
  readonly ids: readonly string[];
  readonly sequences: readonly SequenceRequest[];
  readonly hasLogprobs: boolean;
}

const aborted = { type: "abort", message: "Aborted.", status_code: null, err_type: null };

/** Each event of SGLang repeats the text so far. */
function generateFormat({ context, ids, sequences, hasLogprobs }: FormatParts, asList: boolean): AnswerFormat {
  const texts = sequences.map(() => "");
  const answer = (at: number, count: number, text: string, report: RequestReport | undefined) => {
    const { prompt, text: generated, outputTokens, finishReason } = sequences[at] as SequenceRequest;
    const isAborted = report?.finishReason === "aborted";
    const reason = finishReason === "length" ? { type: "length", length: outputTokens } : { type: "stop", matched: 0 };
    return {
      text,
      output_ids: generated.tokens(count),
      meta_info: {
        id: ids[at],
        finish_reason: isAborted ? aborted : count === outputTokens ? reason : null,
        prompt_tokens: prompt.length,
        weight_version: context.engine.weightVersion,
        num_retractions: report?.preemptions ?? 0,
        completion_tokens: count,
        cached_tokens: report?.cachedTokens ?? 0,
        ...(hasLogprobs && { output_token_logprobs: logprobsOf(context, generated, count) }),
        ...(report && { e2e_latency: (report.finishedMs - report.arrivedMs) / 1000 }),
      },
    };
  };
  const event = (at: number, body: object): string =>
    `data: ${JSON.stringify(asList ? { ...body, index: at } : body)}\n\n`;
  const complete = (report: RequestReport, at: number) => {
    const { text } = sequences[at] as SequenceRequest;
    return answer(at, report.outputTokens, text.text(report.outputTokens), report);
  };
  return {
    token(at, index) {
      const { text, outputTokens } = sequences[at] as SequenceRequest;
      texts[at] += text.word(index);
      // The last event has the cached tokens, which are known when the request is over.
      return index === outputTokens - 1 ? "" : event(at, answer(at, index + 1, texts[at] as string, undefined));
    },
    end: (reports) => `${reports.map((report, at) => event(at, complete(report, at))).join("")}data: [DONE]\n\n`,
    whole: (reports) => JSON.stringify(asList ? reports.map(complete) : complete(reports[0] as RequestReport, 0)),
  };
}

/** Of each token its log-probability, its id, and no text. */
function logprobsOf({ text: { words } }: EngineContext, generated: SequenceRequest["text"], count: number) {
  const tokens = generated.tokens(count);
  return tokenLogprobs(words, generated, count).map((logprob, at) => [logprob, tokens[at], null]);
}
