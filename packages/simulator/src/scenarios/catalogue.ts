import { didYouMean, EspalierError } from "@espalier/core";
import { a10g8 } from "./a10g-8.ts";
import { agents300, scaleOut } from "./agents.ts";
import { agentsTraces } from "./agents-traces.ts";
import { baseten4 } from "./baseten-4.ts";
import { evict, hotDocuments, rag, tiers } from "./documents.ts";
import { gorgo } from "./gorgo.ts";
import { lora64 } from "./lora-64.ts";
import { mooncakeConversation, toolagent } from "./mooncake.ts";
import { onePrompt } from "./one-prompt.ts";
import { p2p } from "./p2p.ts";
import { pdMixes } from "./pd-mix.ts";
import { bursts, decodeBound, longAndShort } from "./prompts.ts";
import { pullSurge } from "./pull-surge.ts";
import { pull64x16k, pull192x48k, pullLadder } from "./pulls.ts";
import { regions3 } from "./regions.ts";
import type { Scenario } from "./scenario.ts";
import { sessionAffinity } from "./session-affinity.ts";
import { sglangPrefixGroups } from "./sglang-prefix-groups.ts";
import { sharedPrefix150x5 } from "./shared-prefix-150x5.ts";
import { skywalker } from "./skywalker.ts";
import { sloMix } from "./slo-mix.ts";
import { faultScenarios, mega, smg240 } from "./smg-240.ts";
import { unevenFleets } from "./uneven-fleets.ts";

const catalogue = new Map(
  [
    sglangPrefixGroups,
    sessionAffinity,
    a10g8,
    sharedPrefix150x5,
    baseten4,
    agents300,
    agentsTraces,
    mooncakeConversation,
    smg240,
    mega,
    rag,
    scaleOut,
    toolagent,
    evict,
    sloMix,
    lora64,
    tiers,
    onePrompt,
    hotDocuments,
    longAndShort,
    decodeBound,
    bursts,
    pullLadder,
    pull64x16k,
    pull192x48k,
    pullSurge,
    regions3,
    gorgo,
    skywalker,
    p2p,
    ...unevenFleets,
    ...pdMixes,
    ...faultScenarios,
  ].map((one) => [one.name, one]),
);

/** In the order of tables. */
export const scenarioNames: readonly string[] = [...catalogue.keys()];

/**
 * Finds a scenario by name.
 *
 * @throws EspalierError `config_invalid` that names the nearest one
 */
export function scenario(name: string): Scenario {
  const found = catalogue.get(name);
  if (found !== undefined) return found;
  const hint = didYouMean(name, scenarioNames);
  const message = `scenario: "${name.slice(0, 100)}" is none of ${scenarioNames.join(", ")}${hint}`;
  throw new EspalierError("config_invalid", message, { param: "scenario" });
}
