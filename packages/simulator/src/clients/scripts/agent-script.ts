import { type BoundedLogNormal, logNormal, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";

export interface AgentParameters {
  /** System prompt and tools, the same for all. */
  readonly systemTokens: number;
  readonly taskTokens: number;
  /** Requests of a trajectory. */
  readonly steps: BoundedLogNormal;
  /** What a tool answers, before every step but the first. */
  readonly toolTokens: BoundedLogNormal;
  readonly outputTokens: number;
  /** How long a tool takes, in milliseconds: uniform between the two. */
  readonly toolTimeMs: { readonly least: number; readonly most: number };
}

/** The one text that all agents share. */
const systemPrompt = 0;

/** Agents at work: a task, then step after step, each with what a tool gave back. */
export function agentScripts(parameters: AgentParameters, seed: number): ScriptOf {
  const { systemTokens, taskTokens, toolTokens, outputTokens, toolTimeMs } = parameters;
  return (trajectory) => {
    const random = ownRandom(seed, trajectory);
    const turns = Math.round(logNormal(parameters.steps, random));
    return {
      turns,
      expectedTokens: systemTokens + taskTokens + turns * (outputTokens + toolTokens.median),
      pauseMs: (turn) => (turn === 0 ? 0 : toolTimeMs.least + (toolTimeMs.most - toolTimeMs.least) * random.float()),
      write(turn, conversation) {
        if (turn === 0) {
          conversation.share(systemPrompt, systemTokens);
          conversation.own(taskTokens);
        } else {
          conversation.own(Math.round(logNormal(toolTokens, random)));
        }
        return outputTokens;
      },
    };
  };
}
