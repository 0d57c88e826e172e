import type { Clock, TargetIndex } from "@espalier/core";
import type { SharedLoad } from "@espalier/shared-tree";

/** A prompt that this router sends. */
interface SentPrompt {
  readonly target: TargetIndex;
  /** Tokens that the target has to compute. */
  readonly uncachedTokens: number;
  /** Tokens that it is believed to hold. */
  readonly matchedTokens: number;
}

/** What other routers may have sent and not published yet. */
export interface PeerTraffic {
  sent(prompt: SentPrompt): void;
  /** Prefill tokens that the others are expected to have sent since they last published, to any target. */
  estimatedPeerTokens(): number;
  /**
   * Whether far more arrives at once than on average. If not, `peerTokensAt` is 0 everywhere and need not be called.
   */
  isBurst(): boolean;
  /** Tokens that they are expected to have sent to one target because it holds the prefix of a burst. */
  peerTokensAt(target: TargetIndex): number;
  /**
   * Whether prompts that are cold from the same block on should meet at one target, whichever routers they arrive at.
   */
  isBurstRendezvous(promptTokens: number): boolean;
  /** Whether this router is the one, of all routers, that should send there what could go anywhere. */
  isOwn(target: TargetIndex): boolean;
}

/** Time over which the own traffic is averaged. */
const memoryMs = 2_000;
/** Median delay of other routers' load between neighbours, measured by the simulator with real links. */
const loadDelayMs = 6;
/** Without its largest prompt, a burst is at least this many times the average traffic in the time of that delay. */
const burstRatio = 3;
/** If the average unreported share of a prompt is below this, routers seldom meet by accident. */
const seldom = 0.1;

/**
 * Expects of every other router what this one does itself, because their clients resolve one name and no router can
 * publish what it has not published yet. Even traffic is expected at its average. For a burst, many prompts that arrive
 * at this router at once also arrive at the others. The cold ones may go anywhere; those that follow a match go where
 * that is.
 *
 * @param isOwn divides the targets among the routers; each belongs to one router, or to none
 */
export function createPeerTraffic(
  clock: Clock,
  shared: Pick<SharedLoad, "originCount" | "linkDelayMs">,
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
    estimatedPeerTokens() {
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
      const unseenMs = loadDelayMs + shared.linkDelayMs;
      return isBurst() || tokensPerMs * unseenMs * shared.originCount < seldom * promptTokens;
    },
  };
}

/** Tokens sent in the time of that delay. One prompt is no burst, so the largest is left out. */
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
