import { createOpenLoop } from "../clients/loops.ts";
import { type AdapterParameters, adapterScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario } from "./scenario.ts";

/**
 * As many adapters as the fleet has slots: each can be loaded once and stay, if routers arrange it. Popularity follows
 * Zipf, so a fifth of all requests use the first adapter, more than an engine's share. Lengths are chosen for this
 * scenario.
 */
const requests = {
  adapters: 64,
  zipf: 1,
  sharedTokens: 600,
  ownTokens: 300,
  outputTokens: 150,
} satisfies AdapterParameters;

export const lora64Parameters = {
  requests,
  engines: 8,
  slots: 8,
  /**
   * A rank-16 adapter on all linear layers of a 7B model has 40 M parameters, 80 MB. vLLM keeps no more adapters in
   * host memory than there are slots (`max_cpu_loras`). It therefore reads others from disk, and the step waits: 80 MB
   * at 0.5 GB/s, plus 40 ms to unpack and copy them (estimates).
   */
  loadMs: 200,
  /**
   * At 10 a second, routers without knowledge of adapters still keep up. Every second request then loads one, which
   * takes an eighth of an engine's time, plus 0.3 on prefill. At twice the rate they do not keep up.
   */
  ratePerS: 10,
  /** Multiples of that rate. */
  scales: [1, 1.5, 2],
  durationS: 300,
} as const;

const { engines, slots, loadMs, ratePerS, scales, durationS } = lora64Parameters;

export const lora64: Scenario = {
  name: "lora-64",
  summary: "Requests for 64 LoRA adapters, popular as Zipf has it, on eight engines with eight slots each.",
  fleet: { preset: "a10g-7b", parameters: { adapterSlots: slots, adapterLoadMs: loadMs }, engines, routers: 2 },
  policies: ["round_robin", "least_connections", "cache_aware", "epp_weighted", "least_work", "predicted_latency"],
  variants: scales.map((scale) => ({ name: `${scale}x`, scale })),
  published: [],
  durationS,
  isOpenLoop: true,
  createWorkload(options) {
    const { seed, scale } = options;
    return createOpenLoop({
      seed,
      startsPerS: ratePerS * scale,
      meanTurns: 1,
      scriptOf: adapterScripts(requests, seed),
      limits: limitsOf(options, durationS),
    });
  },
};
