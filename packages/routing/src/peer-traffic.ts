import type { Clock, TargetIndex } from "@espalier/common";
import type { SharedLoad } from "@espalier/replication";

/** What other routers may have sent out that is not known here yet. */
export interface PeerTraffic {
  /** This router sends a prompt of which an engine has to compute so many tokens. */
  sent(uncachedTokens: number): void;
  /** Prefill tokens that the others are expected to have sent since what they last told. */
  unseenTokens(): number;
  /** Whether this router, of all of them, is the one that should send there what could as well go elsewhere. */
  isOwn(target: TargetIndex): boolean;
}

/** Over which the own traffic is averaged. */
const memoryMs = 2_000;
/** How late the load of other routers is known, at the median: the simulator measures it with real links. */
const loadDelayMs = 6;

/**
 * Expects of every other router what this one does itself, as their clients resolve one name: nobody tells what it has
 * not told.
 *
 * @param isOwn shares the targets out among the routers; each belongs to one, or to none
 */
export function createPeerTraffic(
  clock: Clock,
  shared: Pick<SharedLoad, "originCount">,
  isOwn: PeerTraffic["isOwn"],
): PeerTraffic {
  let tokensPerMs = 0;
  let atMs = clock.nowMs();
  const decay = (): void => {
    const nowMs = clock.nowMs();
    tokensPerMs *= Math.exp((atMs - nowMs) / memoryMs);
    atMs = nowMs;
  };
  return {
    isOwn,
    sent(uncachedTokens) {
      decay();
      tokensPerMs += uncachedTokens / memoryMs;
    },
    unseenTokens() {
      if (shared.originCount === 0) return 0;
      decay();
      return tokensPerMs * shared.originCount * loadDelayMs;
    },
  };
}
