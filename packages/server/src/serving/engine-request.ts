import type { Random } from "@espalier/core";
import { rankNumber, type Target } from "@espalier/engines";
import { type ChosenPull, type LegEdits, pullProtocols } from "@espalier/routing";
import type { BodyFields, PlannedRequest } from "../request/planned-request.ts";

/** Headers for an engine of a pool. The header that vLLM and SGLang know selects a rank of an engine with several. */
export function engineHeaders({ upstreamHeaders }: PlannedRequest["pool"], target: Target): readonly string[] {
  if (target.engine.targets.length === 1) return upstreamHeaders;
  return [...upstreamHeaders, "x-data-parallel-rank", String(rankNumber(target))];
}

/** SGLang reads the rank of `/generate` from the body (`GenerateReqInput` in `managers/io_struct.py`, 0.5.23). */
export function rankFields({ endpointId }: Pick<PlannedRequest, "endpointId">, target: Target): BodyFields {
  return endpointId === "generate" && target.engine.targets.length > 1
    ? { routed_dp_rank: String(rankNumber(target)) }
    : {};
}

/** What a request's engine has to be told to pull blocks from another one. */
export function pullEdits({ source }: ChosenPull<Target>, random: Random): LegEdits {
  const { url, kvPull: pull } = source.engine;
  if (!pull) throw new TypeError(`engine ${source.engine.id} does not serve KV blocks`);
  return pullProtocols[pull.protocol].edits({ url, pull, rank: rankNumber(source) }, random);
}
