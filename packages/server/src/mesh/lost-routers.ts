import type { Clock } from "@espalier/common";
import type { MemberDescription } from "@espalier/mesh";

/** How long a router that was lost is told of: who looks comes later than the loss. */
const toldMs = 3_600_000;
/** Those lost longest ago go first. */
const maxLost = 64;

/** Routers that were alive and went without a goodbye. The membership itself forgets them within seconds. */
export interface LostRouters {
  /** @param members as they are now; to be told more often than every `forgetMs` of the membership */
  update(members: readonly Pick<MemberDescription, "router" | "state">[]): void;
  /** Those that are not members now, those lost last at the end. */
  list(): readonly string[];
}

export function createLostRouters(clock: Clock): LostRouters {
  const alive = new Set<string>();
  const lostMs = new Map<string, number>();

  const forgetOld = (): void => {
    for (const [router, atMs] of lostMs) {
      if (lostMs.size > maxLost || clock.nowMs() - atMs >= toldMs) lostMs.delete(router);
    }
  };
  return {
    update(members) {
      const states = new Map(members.map(({ router, state }) => [router, state]));
      for (const router of alive) {
        const state = states.get(router);
        if (state === "alive" || state === "suspect") continue;
        alive.delete(router);
        if (state !== "left") lostMs.set(router, clock.nowMs());
      }
      for (const [router, state] of states) {
        if (state !== "alive") continue;
        alive.add(router);
        lostMs.delete(router);
      }
      forgetOld();
    },
    list: () => [...lostMs.keys()],
  };
}
