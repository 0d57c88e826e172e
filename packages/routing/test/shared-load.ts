import type { SharedLoad } from "@espalier/shared-tree";

export type SharedColumns = { -readonly [Name in keyof SharedLoad]: SharedLoad[Name] };

/** What other routers have sent, as a test may change it: nothing at first, to any of so many targets. */
export function nothingShared(targets = 0): SharedColumns {
  const column = (): Float64Array => new Float64Array(targets);
  return {
    ...{
      inFlight: column(),
      pendingPrefillTokens: column(),
      decodeTokens: column(),
      activeTokens: column(),
      lendingTokens: column(),
      yieldingInFlight: column(),
      answers: column(),
    },
    ...{ pendingWorkMs: column(), sentWorkMs: column(), computedMs: column().fill(Number.NEGATIVE_INFINITY) },
    pendingSinceMs: column().fill(Number.POSITIVE_INFINITY),
    ...{ sinceMs: 0, originCount: 1, linkDelayMs: 0, ageMs: () => 0 },
  };
}
