import type { Clock } from "@espalier/common";

/** What a finished request made engines do. */
export interface ServedTokens {
  /** Prompt tokens that had to be computed. */
  readonly uncachedTokens: number;
  readonly outputTokens: number;
}

/** How much of the work of a pool is prefill. */
export interface RoleBalance {
  observe(served: ServedTokens): void;
  /** The share of engines, 0 to 1, that should compute prompts; NaN before the first request. */
  prefillShare(): number;
  /** How many of so many engines: at least one for each of the two roles where there are two engines. */
  prefillEngines(engineCount: number): number;
}

export interface RoleBalanceOptions {
  readonly clock: Clock;
  /** What an engine takes for a prompt token, and for a token of output when its batch is as full as it should be. */
  readonly prefillMsPerToken?: number;
  readonly decodeMsPerToken?: number;
}

/** What came so long ago counts half. */
const halfLifeMs = 300_000;
/** 10,000 prompt tokens, and 2,000 tokens of output in a batch of 64, a second. */
const usual = { prefillMsPerToken: 0.1, decodeMsPerToken: 0.5 };

/** Weighs the work of recent requests, each in milliseconds of an engine that does nothing else. */
export function createRoleBalance({ clock, ...rates }: RoleBalanceOptions): RoleBalance {
  const { prefillMsPerToken, decodeMsPerToken } = { ...usual, ...rates };
  let prefillMs = 0;
  let decodeMs = 0;
  let updatedMs = clock.nowMs();
  const decay = (): void => {
    const now = clock.nowMs();
    const kept = 0.5 ** (Math.max(0, now - updatedMs) / halfLifeMs);
    updatedMs = now;
    prefillMs *= kept;
    decodeMs *= kept;
  };
  const share = (): number => prefillMs / (prefillMs + decodeMs);
  return {
    observe({ uncachedTokens, outputTokens }) {
      decay();
      prefillMs += Math.max(0, uncachedTokens) * prefillMsPerToken;
      decodeMs += Math.max(0, outputTokens) * decodeMsPerToken;
    },
    prefillShare: share,
    prefillEngines(engineCount) {
      const wanted = Math.round(engineCount * share());
      if (engineCount < 2 || Number.isNaN(wanted)) return 0;
      return Math.min(engineCount - 1, Math.max(1, wanted));
    },
  };
}
