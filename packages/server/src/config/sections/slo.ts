import { Type } from "typebox";
import { durationOrNone, section } from "../schema-builders.ts";
import { compiled } from "../settings-of.ts";

const bounds = { minimum: "1ms", maximum: "24h" };

/** In code `none` is Infinity: every answer keeps it. */
const objective = (options: { readonly description: string; readonly default?: string }) =>
  compiled(durationOrNone({ ...bounds, ...options }), (written) =>
    written === "none" ? Number.POSITIVE_INFINITY : written,
  );

export const slo = section(
  "Service level objectives: the basis of goodput and of the weights of `predicted_latency`. No request is rejected for them.",
  {
    ttft: objective({
      description:
        "Objective for the time to first token, from a complete request to the first content of its answer. `none` for none.",
      default: "2s",
    }),
    tpot: objective({
      description:
        "Objective for the time per output token after the first, the mean over an answer. `none` for none. The stricter it is, the more `predicted_latency` keeps prompts away from engines where many answers are under way.",
      default: "50ms",
    }),
  },
);

/** Objectives of some requests, each of which may be left to what is set for more of them. */
export const ownSlo = (whose: string, otherwise: string) =>
  Type.Optional(
    section(`Objectives ${whose}.`, {
      ttft: Type.Optional(objective({ description: `Like \`slo.ttft\`, ${whose}. Default: ${otherwise}.` })),
      tpot: Type.Optional(objective({ description: `Like \`slo.tpot\`, ${whose}. Default: ${otherwise}.` })),
    }),
  );
