import type { Alias } from "./container.ts";

const sglang = (name: string): Alias => ({ name, of: "SGLang and SMG", isFlag: true });
const dynamo = (name: string): Alias => ({ name, of: "NVIDIA Dynamo", isFlag: true });
/** Its options stand in files alone; the weight of a score is written beside the scorer's name. */
const llmD = (name: string): Alias => ({ name, of: "llm-d", isFlag: false });

/** Options of policies, and what the routers that the policies come from call them. Units and meaning are the same. */
export const policyAliases: Readonly<Record<string, readonly Alias[]>> = {
  "cache-threshold": [sglang("cache-threshold")],
  "balance-abs-threshold": [sglang("balance-abs-threshold")],
  "balance-rel-threshold": [sglang("balance-rel-threshold")],
  "prefix-tokens": [sglang("prefix-token-count")],
  "load-factor": [sglang("prefix-hash-load-factor")],
  "max-idle-seconds": [sglang("max-idle-secs")],
  "queue-weight": [llmD("queue-scorer")],
  "kv-cache-utilization-weight": [llmD("kv-cache-utilization-scorer")],
  "prefix-cache-weight": [llmD("prefix-cache-scorer")],
  "active-request-weight": [llmD("active-request-scorer")],
  "token-load-weight": [llmD("token-load-scorer")],
  "no-hit-lru-weight": [llmD("no-hit-lru-scorer")],
  "lora-affinity-weight": [llmD("lora-affinity-scorer")],
  "max-prefix-tokens": [llmD("maxPrefixTokensToMatch")],
  "token-load-threshold": [llmD("queueThresholdTokens")],
  "affinity-threshold": [llmD("affinityThreshold")],
  "max-ttft-penalty-ms": [llmD("maxTTFTPenaltyMs")],
  "prefill-tokens-per-second": [llmD("peakPrefillThroughput")],
  "prefill-load-scale": [dynamo("router-prefill-load-scale")],
  temperature: [dynamo("router-temperature")],
  "block-size": [dynamo("kv-cache-block-size")],
  "cpu-credit": [dynamo("router-host-cache-hit-weight")],
  "disk-credit": [dynamo("router-disk-cache-hit-weight")],
  "external-credit": [dynamo("shared-cache-multiplier")],
};
