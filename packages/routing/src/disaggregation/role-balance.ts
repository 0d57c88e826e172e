import { type Clock, DecayedSum } from "@espalier/core";
import type { ChosenSignals } from "./pair-policies.ts";

/** The work of a finished request. */
interface ServedTokens {
  /** Prompt tokens that had to be computed. */
  readonly uncachedTokens: number;
  readonly outputTokens: number;
  /** Milliseconds these take an engine that does nothing else; computed from the usual rate if unknown. */
  readonly prefillMs?: number | undefined;
  /** Milliseconds during which the answer was written, times its share of the engine's KV blocks. NaN if unknown. */
  readonly heldMs?: number | undefined;
}

/** The share of prefill in the work of a pool. */
export interface RoleBalance {
  observe(served: ServedTokens): void;
  /** The share of engines, 0 to 1, that should compute prompts; NaN before the first request. */
  prefillShare(): number;
  /** The same as a number of engines. With two engines or more, each role gets at least one. */
  prefillEngines(engineCount: number): number;
  /** Decayed work, in engine milliseconds. */
  work(): RoleWork;
}

/** Work of the two roles, in milliseconds of an engine that does nothing else. */
export interface RoleWork {
  readonly prefillMs: number;
  readonly decodeMs: number;
}

export interface RoleBalanceOptions {
  readonly clock: Clock;
  /** Engine time for a prompt token, and for an output token in a batch as full as it should be. */
  readonly prefillMsPerToken?: number;
  readonly decodeMsPerToken?: number;
  /** Work that other routers have seen. None by default. */
  readonly others?: () => RoleWork;
}

/** Half-life of observed work. */
export const balanceHalfLifeMs = 300_000;
/** 10,000 prompt tokens per second, and 2,000 output tokens per second in a batch of 64. */
const usual = { prefillMsPerToken: 0.1, decodeMsPerToken: 0.5 };
/** Share of its KV blocks to which a decode engine should be filled. The rest absorbs bursts. */
const fullShare = 0.6;
const nothing: RoleWork = { prefillMs: 0, decodeMs: 0 };

/**
 * Weighs the work of recent requests, in milliseconds of an engine that does nothing else. An answer costs the larger
 * of two: its part of the steps of a full batch, or its part of the KV memory. Long prompts fill the memory first.
 */
export function createRoleBalance({ clock, others = () => nothing, ...rates }: RoleBalanceOptions): RoleBalance {
  const { prefillMsPerToken, decodeMsPerToken } = { ...usual, ...rates };
  const prefill = new DecayedSum(balanceHalfLifeMs);
  const decode = new DecayedSum(balanceHalfLifeMs);
  const work = (): RoleWork => ({ prefillMs: prefill.at(clock.nowMs()), decodeMs: decode.at(clock.nowMs()) });
  const share = (): number => {
    const [own, other] = [work(), others()];
    const prefillMs = own.prefillMs + other.prefillMs;
    return prefillMs / (prefillMs + own.decodeMs + other.decodeMs);
  };
  return {
    observe({ uncachedTokens, outputTokens, prefillMs: ownMs, heldMs = 0 }) {
      const nowMs = clock.nowMs();
      prefill.add(ownMs ?? Math.max(0, uncachedTokens) * prefillMsPerToken, nowMs);
      const held = Number.isFinite(heldMs) ? Math.max(0, heldMs) : 0;
      decode.add(Math.max(Math.max(0, outputTokens) * decodeMsPerToken, held / fullShare), nowMs);
    },
    prefillShare: share,
    prefillEngines(engineCount) {
      const wanted = Math.round(engineCount * share());
      if (engineCount < 2 || Number.isNaN(wanted)) return 0;
      return Math.min(engineCount - 1, Math.max(1, wanted));
    },
    work,
  };
}

/** Prefill time of a prompt, in milliseconds, from learned rates. */
export function promptWorkMs(
  { prefillMsPerToken, prefillMsPerTokenPair }: Pick<ChosenSignals, "prefillMsPerToken" | "prefillMsPerTokenPair">,
  { promptTokens, uncachedTokens }: { readonly promptTokens: number; readonly uncachedTokens: number },
): number {
  const uncached = Math.max(0, uncachedTokens);
  return uncached * (prefillMsPerToken + prefillMsPerTokenPair * (promptTokens - uncached / 2));
}
