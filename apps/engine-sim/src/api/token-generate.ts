import type { JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { optionalBoolean, optionalObject, required, tokenIds } from "../http/body-fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { wrongField } from "../http/exchange.ts";
import type { AnswerFormat } from "../serving/answer.ts";
import { deliver } from "../serving/deliver.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import { tokenLogprobs } from "./logprobs.ts";
import { modelOf, outputLimit, planLeg, planSequences } from "./planning.ts";

/** `POST /inference/v1/generate` of vLLM: token ids in, token ids out. */
export function generateTokens(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const model = modelOf(context, body);
  const prompt = tokenIds(required(body.token_ids, "token_ids"));
  if (!prompt) throw wrongField("token_ids", "a list of token ids");
  const sampling = required(optionalObject(body, "sampling_params"), "sampling_params");
  const limit = outputLimit(context, sampling, "max_tokens");
  const planned = planSequences({ context, exchange, body, prompts: [prompt], outputLimit: limit, sampling });
  const { sequences, leg } = planLeg(context, exchange, body, planned);
  const hasLogprobs = sampling.logprobs !== undefined && sampling.logprobs !== null;
  const format = tokenFormat(context, exchange.requestId, sequences, hasLogprobs);
  deliver(context, exchange, { model, stream: optionalBoolean(body, "stream") ?? false, sequences, format, leg });
}

function tokenFormat(
  { text: { words } }: EngineContext,
  id: string,
  sequences: readonly SequenceRequest[],
  hasLogprobs: boolean,
): AnswerFormat {
  const choice = (at: number, from: number, until: number, reason: string | null) => {
    const { text } = sequences[at] as SequenceRequest;
    const token_ids = text.tokens(until).slice(from);
    const logprobs = tokenLogprobs(words, text, until).slice(from);
    const content = token_ids.map((token, place) => ({
      ...{ token: `token_id:${token}`, logprob: logprobs[place], bytes: null, top_logprobs: [] },
    }));
    return { index: at, token_ids, logprobs: hasLogprobs ? { content } : null, finish_reason: reason };
  };
  const whole = (report: RequestReport, at: number) => {
    const { finishReason } = sequences[at] as SequenceRequest;
    return choice(at, 0, report.outputTokens, report.finishReason === "aborted" ? "abort" : finishReason);
  };
  const event = (choices: readonly object[]): string => `data: ${JSON.stringify({ request_id: id, choices })}\n\n`;
  return {
    token: (at, index) => event([choice(at, index, index + 1, null)]),
    end: (reports) =>
      `${event(reports.map((report, at) => ({ ...whole(report, at), token_ids: [], logprobs: null })))}data: [DONE]\n\n`,
    whole: (reports) =>
      JSON.stringify({
        request_id: id,
        choices: reports.map(whole),
        prompt_logprobs: null,
        kv_transfer_params: null,
        usage: usageOf(reports),
      }),
  };
}

function usageOf(reports: readonly RequestReport[]) {
  const [first] = reports;
  const completion = reports.reduce((sum, { outputTokens }) => sum + outputTokens, 0);
  const prompt = first?.promptTokens ?? 0;
  return {
    ...{ prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion },
    prompt_tokens_details: { cached_tokens: first?.cachedTokens ?? 0 },
  };
}
