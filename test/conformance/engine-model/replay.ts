import { type CapturedRequest, type CapturedSession, usageOf } from "@espalier/bench";
import type { Capture, CapturedMessage, ContentEvent } from "./capture.ts";
import { createReplayer, type Replayer, removalsOf } from "./replayer.ts";
import { hasPrompt, type RequestStep, stepsOf } from "./steps.ts";

/** One request whose `cached_tokens` can be compared. */
interface Comparison {
  readonly id: number;
  readonly phase: string;
  readonly engine: number;
  readonly model: number;
}

export interface EpochResult {
  readonly compared: Comparison[];
  /** Requests whose figure cannot be compared, with the reason. */
  readonly excluded: { readonly id: number; readonly phase: string; readonly reason: string }[];
  /** Stretches in which the order of evictions can be compared, content by content, grouped as the events were. */
  readonly stretches: { readonly name: string; readonly engine: string[][]; readonly model: string[][] }[];
  /** Contents that became reusable, in order, in the same stretches. */
  readonly stored: { readonly name: string; readonly engine: string[]; readonly model: string[] }[];
}

/** Replays what one engine (one data-parallel rank of one epoch) was asked through the model. */
export function replayEpoch(capture: Capture, session: CapturedSession, endpoint: number): EpochResult {
  const messages = capture.messages.filter((m) => m.session === session.session && m.endpoint === endpoint);
  const steps = stepsOf(capture, session, endpoint, messages);
  const result: EpochResult = { compared: [], excluded: [], stretches: [], stored: [] };
  let replayer: Replayer | undefined = createReplayer(capture, session);
  let stretchFrom = messages[0]?.n ?? 0;
  let stretchName = "from the start";

  const announcedAgain = new Set<ContentEvent>();
  const closeStretch = (until: number): void => {
    if (!replayer) return;
    const inStretch = messages.filter((message) => message.n >= stretchFrom && message.n < until);
    const events = inStretch.flatMap((message) => message.events);
    result.stretches.push({ name: stretchName, engine: removalsOf(events), model: removalsOf(replayer.events) });
    result.stored.push({
      name: stretchName,
      engine: storedOf(events.filter((event) => !announcedAgain.has(event))),
      model: storedOf(replayer.events),
    });
  };
  let position = stretchFrom;
  for (const [at, step] of steps.entries()) {
    const next = steps[at + 1]?.from ?? Number.POSITIVE_INFINITY;
    const during = messages.filter((message) => message.n >= step.from && message.n < next);
    if (!("reset" in step)) replayer?.runUnlisted(messages.filter((m) => m.n >= position && m.n < step.from));
    position = Math.max(step.from, ...during.map((message) => message.n + 1));
    if ("reset" in step) {
      if (!replayer) {
        // The cache is empty again, so that a new engine stands where the captured one does.
        replayer = createReplayer(capture, session);
        stretchFrom = step.from;
        stretchName = `from the reset at message ${step.from}`;
      }
      replayer.reset();
    } else if (replayer) {
      const repeated = repeatedBy(step, during, session.block_size);
      if (repeated) announcedAgain.add(repeated);
      const reason = unmodelled(step, session);
      if (reason !== undefined) {
        closeStretch(step.from);
        if (step.requests.every(hasPrompt)) result.stretches.push(replayer.oldContentDuring(step.requests, during));
        for (const { id, phase } of step.requests) result.excluded.push({ id, phase, reason });
        replayer = undefined;
      } else {
        collect(step, replayer.run(step.requests, during), result);
      }
    } else {
      for (const { id, phase } of step.requests) {
        result.excluded.push({ id, phase, reason: "the cache is not known since a phase that was not modelled" });
      }
    }
  }
  closeStretch(Number.POSITIVE_INFINITY);
  return result;
}

/** Why the cache cannot be known after this step, or undefined when it can. */
function unmodelled(step: RequestStep, session: CapturedSession): string | undefined {
  if (!step.requests.every(hasPrompt)) return "the capture does not tell the prompt";
  if (step.rankUnknown) return "which data-parallel rank served it is not known";
  const blocks = step.requests.map((request) => {
    const tokens = request.prompt_token_ids!.length + (usageOf(request)?.completion_tokens ?? 0);
    return Math.ceil(tokens / session.block_size);
  });
  const wanted = blocks.reduce((sum, count) => sum + count, 0);
  if (step.requests.length === 1 || wanted <= session.num_blocks) return undefined;
  return "more at the same time than there are blocks: who is preempted depends on the engine's speed";
}

function collect(step: RequestStep, cached: readonly number[], result: EpochResult): void {
  const requests = step.requests.map((request, at) => ({ request, model: cached[at]! }));
  const comparable: { request: CapturedRequest; model: number; engine: number }[] = [];
  for (const { request, model } of requests) {
    const { id, phase } = request;
    const reason = incomparable(request);
    if (reason !== undefined) result.excluded.push({ id, phase, reason });
    else comparable.push({ request, model, engine: usageOf(request)!.prompt_tokens_details?.cached_tokens ?? 0 });
  }
  // Of requests that ran together it is not known which came first: their figures are compared in order of size.
  const engine = comparable.map((one) => one.engine).sort((one, other) => one - other);
  const model = comparable.map((one) => one.model).sort((one, other) => one - other);
  for (const [at, { request }] of comparable.entries()) {
    result.compared.push({ id: request.id, phase: request.phase, engine: engine[at]!, model: model[at]! });
  }
}

function incomparable(request: CapturedRequest): string | undefined {
  const usage = usageOf(request);
  if (request.aborted || !usage) return "aborted: the answer has no usage";
  if ((request.request?.n ?? 1) > 1) return "n > 1: one figure for several sequences";
  const { prompt_tokens: promptTokens = request.prompt_token_ids!.length } = usage;
  if (promptTokens !== request.prompt_token_ids!.length) return "the engine's prompt is not the captured one";
  return undefined;
}

const storedOf = (events: readonly ContentEvent[]): string[] =>
  events.flatMap((event) => (event.type === "stored" ? event.blocks : []));

/** What vLLM's full report mode announces once more: a run of blocks that the request found. */
function repeatedBy(
  step: RequestStep,
  during: readonly CapturedMessage[],
  blockSize: number,
): ContentEvent | undefined {
  const [request] = step.requests;
  if (request!.request?.vllm_xargs?.kv_cache_report_mode !== "full") return undefined;
  const found = (usageOf(request!)?.prompt_tokens_details?.cached_tokens ?? 0) / blockSize;
  const events = during.flatMap((message) => message.events);
  return events.find((event) => event.type === "stored" && event.depth + event.blocks.length <= found);
}
