import type { RequestReport } from "@espalier/engine-model";
import { hasErrorEvents } from "../behaviours.ts";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import { injectedStatus } from "../faults.ts";
import { ApiError, asApiError, type Exchange } from "../http/exchange.ts";
import type { AnswerExtra, Arrival, Exporter, Importer, Leg } from "../transfer/leg.ts";
import type { Transfers } from "../transfer/transfers.ts";
import { Answer, type AnswerFormat, type Generation } from "./answer.ts";
import type { EngineContext } from "./engine-context.ts";

/** A request, and this engine's part in it if several engines work on it. */
interface Delivery extends Generation {
  /** Only with one sequence. */
  readonly leg?: Leg | undefined;
}

/**
 * Computes a request on the engine and sends the answer. The request is aborted when the client disconnects.
 *
 * @throws ApiError 400 when the request can never fit, 503 when too many are active; nothing was sent then
 */
export function deliver(context: EngineContext, exchange: Exchange, generation: Delivery): void {
  const { leg, sequences, format } = generation;
  const [sequence] = sequences;
  const answer = new Answer(context, exchange, generation);
  if (leg && sequence && context.transfers) {
    answer.begin();
    void runLeg({ context, transfers: context.transfers, answer, leg, sequence, format });
    return;
  }
  if (!generation.stream || !hasErrorEvents(context.behaviours)) {
    answer.submit(sequences);
    answer.begin();
    return;
  }
  answer.begin();
  try {
    const status = injectedStatus(exchange.fault);
    if (status !== undefined) throw new ApiError(status, `injected fault: ${exchange.fault?.kind}`);
    answer.submit(sequences);
  } catch (error) {
    answer.fail(asApiError(error));
  }
}

interface LegRun {
  readonly context: EngineContext;
  readonly transfers: Transfers;
  readonly answer: Answer;
  readonly leg: Leg;
  readonly sequence: SequenceRequest;
  readonly format: AnswerFormat;
}

/** Computes a request together with other engines: waits for them, fetches blocks from them, offers blocks to them. */
async function runLeg(run: LegRun): Promise<void> {
  const { answer, leg, transfers } = run;
  const over = new AbortController();
  const state = { isComputed: false };
  answer.whenSettled(() => {
    over.abort();
    if (!state.isComputed) leg.exporter?.cancelled?.();
  });
  try {
    await leg.exporter?.ready?.();
    const arrival = leg.importer && (await fetchPrompt(run, leg.importer, over.signal));
    if (answer.isOver) {
      arrival?.done();
      return;
    }
    const shared = arrival ? sharedTokens(arrival.tokens, run.sequence.prompt) : 0;
    if (isBelowThreshold(run, shared)) {
      arrival?.done();
      transfers.tallies.belowThreshold++;
      answer.endEmpty("cache_threshold");
      return;
    }
    submitLeg(run, { arrival, shared, state });
  } catch (error) {
    answer.fail(asApiError(error));
  }
}

/**
 * Fetches the blocks of the prompt from another engine; undefined when the prompt must be computed here.
 *
 * @throws (rejects) ApiError when the request fails without them
 */
async function fetchPrompt(
  { transfers: { tallies }, answer }: LegRun,
  importer: Importer,
  signal: AbortSignal,
): Promise<Arrival | undefined> {
  tallies.fetching++;
  try {
    return await importer.open(signal);
  } catch (error) {
    if (answer.isOver) return undefined;
    return failOrRecompute(importer, tallies, error instanceof Error ? error.message : String(error));
  } finally {
    tallies.fetching--;
  }
}

/** @throws ApiError when the request fails without its blocks */
function failOrRecompute(importer: Importer, tallies: Transfers["tallies"], reason: string): undefined {
  const failure = importer.failure(reason);
  if (failure) tallies.failed++;
  else tallies.recomputed++;
  if (failure) throw failure;
}

function isBelowThreshold({ leg, context, sequence, format }: LegRun, sharedCount: number): boolean {
  const { cacheHitThreshold: threshold } = leg;
  if (threshold === undefined || !format.empty) return false;
  const cached = Math.max(sharedCount, context.engine.cachedTokens(sequence));
  return cached / sequence.prompt.length < threshold;
}

interface Fetched {
  readonly arrival: Arrival | undefined;
  /** Number of prompt tokens that it matches. */
  readonly shared: number;
  readonly state: { isComputed: boolean };
}

/** Submits the request, and fails or resubmits it when its blocks do not arrive. */
function submitLeg(run: LegRun, { arrival, shared, state }: Fetched): void {
  const { context, answer, leg, sequence, transfers } = run;
  const { engine } = context;
  const { tallies, transfer } = transfers;
  const { exporter, importer } = leg;
  const plain = { ...sequence, pinned: exporter?.pins ?? false };
  const hooks = {
    ...(exporter && {
      computed: (reports: readonly RequestReport[]) => offerPrompt({ engine, exporter, state }, reports),
    }),
    // The engine is inside a step and can be called only after it.
    unwanted: ({ id }: RequestReport) => queueMicrotask(() => engine.release(id)),
  };
  if (arrival && shared < Math.min(arrival.tokens.length, sequence.prompt.length)) tallies.mismatched++;
  if (!arrival || !importer || shared === 0) {
    arrival?.done();
    answer.submit([plain], hooks);
    return;
  }
  let hasArrived = false;
  const imported = (tokens: number): void => {
    hasArrived = true;
    tallies.imported++;
    tallies.importedTokens += tokens;
    arrival.done();
  };
  answer.whenSettled(() => arrival.done());
  arrival.whenBroken((reason) => {
    if (hasArrived || answer.isOver) return;
    hasArrived = true;
    try {
      failOrRecompute(importer, tallies, reason);
      answer.submit([plain], hooks);
    } catch (error) {
      answer.fail(asApiError(error));
    }
  });
  const { setupMs, msPerToken } = transfer;
  answer.submit([{ ...plain, imported: { tokens: shared, setupMs, msPerToken } }], { ...hooks, imported });
}

interface Offer {
  readonly engine: EngineContext["engine"];
  readonly exporter: Exporter;
  readonly state: Fetched["state"];
}

async function offerPrompt(
  { engine, exporter, state }: Offer,
  reports: readonly RequestReport[],
): Promise<AnswerExtra> {
  // The engine is inside a step and can be called only after it.
  await Promise.resolve();
  const report = reports[0] as RequestReport;
  try {
    return await exporter.computed(report);
  } catch (error) {
    // Blocks that could not be offered are released.
    engine.release(report.id);
    throw error;
  } finally {
    state.isComputed = true;
  }
}

/** The length of the common prefix of two prompts. */
function sharedTokens(a: Uint32Array, b: Uint32Array): number {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && a[at] === b[at]) at++;
  return at;
}
