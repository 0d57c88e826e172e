import type { LoadGauge } from "./load-exchange.ts";

export const idleGauge: LoadGauge = {
  inFlight: 0,
  pendingPrefillTokens: 0,
  decodeTokens: 0,
  pendingWorkMs: 0,
  activeTokens: 0,
};

export function isIdle(gauge: LoadGauge): boolean {
  return isSameGauge(gauge, idleGauge);
}

export function isSameGauge(one: LoadGauge, other: LoadGauge): boolean {
  return (
    one.inFlight === other.inFlight &&
    one.pendingPrefillTokens === other.pendingPrefillTokens &&
    one.decodeTokens === other.decodeTokens &&
    one.pendingWorkMs === other.pendingWorkMs &&
    one.activeTokens === other.activeTokens
  );
}
