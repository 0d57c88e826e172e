import type { Clock, TargetIndex } from "@espalier/common";
import type { SharedLoad } from "@espalier/replication";

/** A prompt that this router sends. */
export interface SentPrompt {
  readonly target: TargetIndex;
  /** Tokens that the target has to compute. */
  readonly uncachedTokens: number;
  /** Tokens that it is thought to hold. */
  readonly matchedTokens: number;
}

/** What other routers may have sent out that is not known here yet. */
export interface PeerTraffic {
  sent(prompt: SentPrompt): void;
  /** Prefill tokens that the others are expected to have sent since what they last told, wherever. */
  unseenTokens(): number;
  /** Whether far more comes at once than on average. Without that `peerTokensAt` is 0 everywhere, and need not be asked. */
  isBurst(): boolean;
  /** Those that they are expected to have sent to one target, because it holds what a burst of prompts begins with. */
  peerTokensAt(target: TargetIndex): number;
  /** Whether prompts that are cold from the same place on should meet at one target, whichever routers they come to. */
  isBurstRendezvous(promptTokens: number): boolean;
  /** Whether this router, of all of them, is the one that should send there what could as well go elsewhere. */
  isOwn(target: TargetIndex): boolean;
}

/** Over which the own traffic is averaged. */
const memoryMs = 2_000;
/** How late the load of other routers is known, at the median: the simulator measures it with real links. */
const loadDelayMs = 6;
/** Beyond the largest prompt of it, a burst is this often what comes on average in the time that load is late. */
const burstRatio = 3;
/** Where less of a prompt than this is unseen on average, routers seldom meet without wanting to. */
const seldom = 0.1;

/**
 * Expects of every other router what this one does itself, as their clients resolve one name: nobody tells what it has
 * not told. Traffic that comes evenly is expected as it was on average. A burst is not: many prompts that come to this router
 * at once come to the others too. Prompts of it that are cold may go anywhere; those that follow a match go where that is.
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
  const all = new Burst();
  const cold = new Burst();
  const matched: (Burst | undefined)[] = [];
  const decay = (): void => {
    const nowMs = clock.nowMs();
    tokensPerMs *= Math.exp((atMs - nowMs) / memoryMs);
    atMs = nowMs;
  };
  const isBurst = (): boolean => all.excess(clock.nowMs()) > burstRatio * tokensPerMs * loadDelayMs;
  const burstAt = (target: TargetIndex): Burst => {
    const known = matched[target];
    if (known) return known;
    const begun = new Burst();
    matched[target] = begun;
    return begun;
  };
  return {
    isOwn,
    isBurst,
    sent({ target, uncachedTokens, matchedTokens }) {
      decay();
      tokensPerMs += uncachedTokens / memoryMs;
      all.add(uncachedTokens, atMs);
      (matchedTokens > 0 ? burstAt(target) : cold).add(uncachedTokens, atMs);
    },
    unseenTokens() {
      if (shared.originCount === 0) return 0;
      decay();
      const burst = isBurst() ? cold.excess(atMs) : 0;
      return Math.max(tokensPerMs * loadDelayMs, burst) * shared.originCount;
    },
    peerTokensAt(target) {
      const burst = matched[target];
      if (shared.originCount === 0 || !burst || !isBurst()) return 0;
      return burst.excess(clock.nowMs()) * shared.originCount;
    },
    isBurstRendezvous(promptTokens) {
      if (shared.originCount === 0) return false;
      return isBurst() || tokensPerMs * loadDelayMs * shared.originCount < seldom * promptTokens;
    },
  };
}

/** Tokens that were sent in the time that load is late. One prompt makes no burst, so the largest is left out. */
class Burst {
  #tokens = 0;
  #largest = 0;
  #atMs = 0;

  add(tokens: number, nowMs: number): void {
    const kept = this.#kept(nowMs);
    this.#tokens = this.#tokens * kept + tokens;
    this.#largest = Math.max(this.#largest * kept, tokens);
    this.#atMs = nowMs;
  }

  excess(nowMs: number): number {
    return (this.#tokens - this.#largest) * this.#kept(nowMs);
  }

  #kept(nowMs: number): number {
    return Math.exp((this.#atMs - nowMs) / loadDelayMs);
  }
}
