import type { Clock } from "@espalier/common";
import { originKey } from "../origin.ts";
import type { Member } from "../replica-ports.ts";

/** Feeds with fewer changes since their last cut are not worth another. */
export const minWelcomeOps = 256;
/** How long feeds are cut for somebody who has just come. */
export const welcomeMs = 500;

/**
 * Makes journals short for a router that joins. It fetches the state of all targets as a snapshot and the journals besides:
 * what is in both, each feed's owner can cut away before it is sent.
 */
export interface Welcome {
  setMembers(members: readonly Member[]): void;
  isCutWanted(opsSinceCut: number): boolean;
}

/** @param touch called when feeds should be cut now */
export function createWelcome(clock: Clock, touch: () => void): Welcome {
  let known = new Set<string>();
  let untilMs = Number.NEGATIVE_INFINITY;
  return {
    setMembers(members) {
      const alive = new Set(members.flatMap(({ origin, state }) => (state === "alive" ? [originKey(origin)] : [])));
      const hasNew = [...alive].some((key) => !known.has(key));
      known = alive;
      if (!hasNew) return;
      untilMs = clock.nowMs() + welcomeMs;
      touch();
    },
    isCutWanted: (ops) => ops >= minWelcomeOps && clock.nowMs() < untilMs,
  };
}
