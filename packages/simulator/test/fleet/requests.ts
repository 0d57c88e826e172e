import { type EngineParameters, enginePresets } from "@espalier/engine-model";
import { createChainBuilder } from "../../src/clients/conversation.ts";
import type { SimRequest } from "../../src/clients/workload.ts";

/** Steps of 6 ms and 0.35 ms a sequence, prefill at 8 tokens a millisecond, room for 32,000 tokens. */
export const engineParameters: EngineParameters = { ...enginePresets["smg-generic"].parameters, blockCount: 2_000 };

export interface RequestShape {
  readonly index: number;
  /** Names the content after the shared part; the index when left out. */
  readonly session?: number;
  readonly promptTokens?: number;
  /** Tokens at the beginning that all requests have. */
  readonly sharedTokens?: number;
  readonly outputTokens?: number;
  readonly maxOutputTokens?: number;
  readonly className?: string;
  readonly region?: number;
}

/** A request of ten blocks and an answer of one, unless told otherwise. */
export function requestOf(shape: RequestShape): SimRequest {
  const { index, session = index, promptTokens = 160, sharedTokens = 0, outputTokens = 16 } = shape;
  const { className, maxOutputTokens, region } = shape;
  const chain = createChainBuilder({ seed: 1 });
  chain.append(0, sharedTokens);
  chain.append(1 + session, promptTokens - sharedTokens + outputTokens);
  const request = { index, session, turn: 0, promptTokens, outputTokens, chain: chain.view() };
  return {
    ...request,
    ...(className === undefined ? {} : { className }),
    ...(region === undefined ? {} : { region }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
  };
}
