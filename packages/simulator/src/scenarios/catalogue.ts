import { readFileSync } from "node:fs";
import { didYouMean, EspalierError } from "@espalier/core";
import { readScenario } from "./read-scenario.ts";
import type { Scenario } from "./scenario.ts";

/** Files of `scenarios/`, in the order of tables. */
export const scenarioNames: readonly string[] = [
  "sglang-prefix-groups",
  "session-affinity",
  "a10g-8",
  "shared-prefix-150x5",
  "baseten-4",
  "agents-300",
  "agents-swe",
  "agents-traces",
  "mooncake-conversation",
  "smg-240",
  "mega",
  "rag",
  "scale-out",
  "toolagent",
  "evict",
  "slo-mix",
  "lora-64",
  "tiers",
  "kv-pools",
  "one-prompt",
  "hot-documents",
  "long-and-short",
  "decode-bound",
  "bursts",
  "pull-ladder",
  "pull-64x16k",
  "pull-192x48k",
  "pull-surge",
  "regions-3",
  "gorgo",
  "skywalker",
  "p2p-anti-entropy",
  "mixed-engines",
  "slow-engines",
  "quarter-memory",
  "chats-beside-long",
  "tenants",
  "reasoning",
  "flash-crowd",
  "uneven-engines",
  "hundred-engines",
  "short-prompts",
  "few-slots",
  "pd-mix",
  "pd-mix-long-in",
  "pd-mix-long-out",
  "partition",
  "router-loss",
  "join-under-load",
  "rolling-restart",
  "engine-churn",
];

const known = new Map<string, Scenario>();

/**
 * Finds a scenario by name.
 *
 * @throws EspalierError `config_invalid` that names the nearest one
 */
export function scenario(name: string): Scenario {
  if (!scenarioNames.includes(name)) {
    const hint = didYouMean(name, scenarioNames);
    const message = `scenario: "${name.slice(0, 100)}" is not one of ${scenarioNames.join(", ")}${hint}`;
    throw new EspalierError("config_invalid", message, { param: "scenario" });
  }
  const found = known.get(name) ?? readScenario(readFileSync(fileOf(name), "utf8"), `${name}.json`);
  known.set(name, found);
  return found;
}

/** The file of a scenario, found by the package's name: this module may be part of a program's bundle. */
const fileOf = (name: string): URL => new URL(`../scenarios/${name}.json`, import.meta.resolve("@espalier/simulator"));
