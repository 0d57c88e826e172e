import { type EngineParameters, enginePresets, type PresetName } from "@espalier/engine-model";
import { logNormalOfMean } from "../clients/draws.ts";
import { createOpenLoop } from "../clients/loops.ts";
import { type PromptParameters, promptScripts } from "../clients/scripts.ts";
import { limitsOf, type Scenario, type ScenarioVariant } from "./scenario.ts";

/** A fleet, a prompt, and the rate that the fleet sustains. */
interface OnePromptKnee {
  readonly preset: PresetName;
  /** Tokens of the one system prompt. */
  readonly sharedTokens: number;
  /** Concurrent requests in an engine; the preset's own number by default. */
  readonly slots?: number;
  /** Requests per second that eight engines sustain with least_connections. */
  readonly perS: number;
  /** Whether there is also a variant with four times the engines. */
  readonly isWide?: boolean;
}

/**
 * The most common chat: one system prompt for all, short questions, answers of some length. An engine has the prompt
 * after one request. From then on it spends nearly all its time on decode.
 */
export const onePromptParameters = {
  ownTokens: logNormalOfMean(100, 0.6),
  outputTokens: logNormalOfMean(400, 0.6),
  /**
   * Each by `espalier simulate one-prompt --variant NAME --knee-of least_connections --load 0.8 --links delays
   * --duration 240s`; with 60 to 180 s for answers that take less than 20 s.
   */
  knees: [
    { preset: "h100-32b-tp2", sharedTokens: 0, slots: 64, perS: 65.6 },
    { preset: "h100-32b-tp2", sharedTokens: 2_000, perS: 79.7 },
    { preset: "h100-32b-tp2", sharedTokens: 2_000, slots: 256, perS: 71.9 },
    { preset: "h100-32b-tp2", sharedTokens: 8_000, perS: 32.1, isWide: true },
    { preset: "h100-32b-tp2", sharedTokens: 8_000, slots: 256, perS: 32.6 },
    { preset: "h100-32b-tp2", sharedTokens: 8_000, slots: 64, perS: 26.6 },
    { preset: "h100-32b-tp2", sharedTokens: 32_000, perS: 8.3 },
    { preset: "h100-32b-tp2", sharedTokens: 32_000, slots: 256, perS: 8.4 },
    { preset: "a10g-7b", sharedTokens: 0, perS: 45.3 },
    { preset: "a10g-7b", sharedTokens: 8_000, perS: 12.4, isWide: true },
    { preset: "a10g-7b", sharedTokens: 32_000, perS: 3.3 },
    { preset: "b200-moe", sharedTokens: 2_000, slots: 256, perS: 245.5 },
    { preset: "b200-moe", sharedTokens: 8_000, slots: 256, perS: 144.8, isWide: true },
  ] as readonly OnePromptKnee[],
  loads: [0.5, 0.8],
  /** For the scenario itself: 0.93 of its knee. */
  usual: { preset: "h100-32b-tp2", sharedTokens: 8_000, perS: 30 },
  engines: 8,
  durationS: 120,
} as const;

const { ownTokens, outputTokens, knees, loads, usual, engines: usualEngines, durationS } = onePromptParameters;

/** Parameters of engines that can hold such a prompt. */
function parametersOf({ preset, sharedTokens, slots }: OnePromptKnee): Partial<EngineParameters> {
  const { maxModelLength } = enginePresets[preset].parameters;
  return {
    ...(slots === undefined ? {} : { maxRunning: slots }),
    // Qwen2.5 with YaRN.
    ...(sharedTokens + ownTokens.most + outputTokens.most > maxModelLength ? { maxModelLength: 131_072 } : {}),
  };
}

/** The load per engine does not depend on the number of engines. */
function createClients({ sharedTokens, perS }: OnePromptKnee): Scenario["createWorkload"] {
  const requests: PromptParameters = { prompts: 1, sharedTokens, ownTokens, outputTokens };
  return (options) =>
    createOpenLoop({
      seed: options.seed,
      startsPerS: ((perS * options.engines) / usualEngines) * options.scale,
      meanTurns: 1,
      scriptOf: promptScripts(requests, options.seed),
      limits: limitsOf(options, durationS),
    });
}

function variant(
  name: string,
  knee: OnePromptKnee,
  more: Pick<ScenarioVariant, "engines" | "scale"> = {},
): ScenarioVariant {
  const parameters = parametersOf(knee);
  return { name, preset: knee.preset, parameters, ...more, createWorkload: createClients(knee) };
}

function nameOf({ preset, sharedTokens, slots }: OnePromptKnee): string {
  return `${preset}-${sharedTokens / 1_000}k${slots === undefined ? "" : `-${slots}-slots`}`;
}

const wide = knees.filter(({ isWide }) => isWide);

export const onePrompt: Scenario = {
  name: "one-prompt",
  summary: "Chats behind one system prompt of 8,000 tokens: 100 of their own, answers of 400.",
  fleet: { preset: usual.preset, parameters: {}, engines: usualEngines, routers: 1 },
  policies: ["random", "least_connections", "lmetric", "predicted_latency"],
  variants: [
    variant("30-per-s", usual),
    variant("30-per-s-256-slots", { ...usual, slots: 256 }),
    variant("30-per-s-2k", { ...usual, sharedTokens: 2_000 }),
    variant("120-per-s-32-engines", usual, { engines: 32 }),
    ...loads.flatMap((scale) => [
      ...knees.map((knee) => variant(`${nameOf(knee)}-${scale}`, knee, { scale })),
      ...wide.map((knee) => variant(`${nameOf(knee)}-32-engines-${scale}`, knee, { engines: 32, scale })),
    ]),
  ],
  published: [],
  admission: true,
  durationS,
  isOpenLoop: true,
  createWorkload: createClients(usual),
};
