import type { RequestReport } from "@espalier/engine-model";
import type { SequenceRequest } from "../engine/simulated-engine.ts";
import type { Leg } from "../transfer/leg.ts";
import { Answer } from "./answer.ts";
import type { AnswerFormat } from "./answer-format.ts";
import type { EngineContext } from "./engine-context.ts";
import type { Exchange } from "./exchange.ts";
import { runLeg } from "./leg-run.ts";

/** What a request asks of the engine, and how it is answered. */
interface Generation {
  readonly model: string;
  readonly stream: boolean;
  readonly sequences: readonly SequenceRequest[];
  readonly format: AnswerFormat;
  /** Called when all sequences are complete, before the end is sent. */
  readonly completed?: (reports: readonly RequestReport[]) => void;
  /** What other engines have to do with it; only where there is one sequence. */
  readonly leg?: Leg | undefined;
}

/**
 * Has the engine compute a request and sends the answer as it comes. The engine forgets the request when the client
 * goes away.
 *
 * @throws ApiError 400 when the engine can never hold the request, 503 when too many are active; nothing was sent then
 */
export function deliver(context: EngineContext, exchange: Exchange, generation: Generation): void {
  const { leg, sequences, format } = generation;
  const [sequence] = sequences;
  const answer = new Answer(context, exchange, generation);
  if (leg && sequence && context.transfers) {
    answer.begin();
    void runLeg({ context, transfers: context.transfers, answer, leg, sequence, format });
    return;
  }
  answer.submit(sequences);
  answer.begin();
}
