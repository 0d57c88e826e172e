import type { Cancel, Logger } from "@espalier/common";
import type { Member } from "@espalier/replication";
import type { DialPlan } from "./dial-plan.ts";
import type { Gossip } from "./gossip.ts";
import type { MemberClaim } from "./member-record.ts";
import { type MemberEntry, type MemberTable, memberOf } from "./member-table.ts";
import type { MembershipChange } from "./membership.ts";
import type { MembershipMeters } from "./membership-meters.ts";
import type { OwnTime } from "./own-time.ts";

export interface MemberJudgeDeps {
  readonly ownTime: OwnTime;
  readonly table: MemberTable;
  readonly gossip: Gossip;
  readonly plan: DialPlan;
  readonly meters: MembershipMeters;
  readonly logger: Logger;
  /** Ends what there is of a link to a member whose life is over. */
  unlink(entry: MemberEntry): void;
}

/** Judges the members after every event, and tells listeners what has changed. */
export class MemberJudge {
  readonly #deps: MemberJudgeDeps;
  readonly #listeners = new Set<(change: MembershipChange) => void>();

  constructor(deps: MemberJudgeDeps) {
    this.#deps = deps;
  }

  onChange(listener: (change: MembershipChange) => void): Cancel {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  stop(): void {
    this.#listeners.clear();
  }

  /** @param scale by how much this router's own slowness stretches its judgement */
  judgeAll(scale: number): void {
    const { table, ownTime } = this.#deps;
    const nowMs = ownTime.nowMs();
    const reached = table.reachable(nowMs);
    const changed: MemberEntry[] = [];
    let hasForgotten = false;
    for (const [router, entry] of table.entries) {
      const state = table.judge(entry, reached.has(router), nowMs, scale);
      if (state !== entry.state && state !== undefined) this.#become(entry, state, nowMs);
      if (entry.isChanged && entry.state !== undefined) changed.push(entry);
      entry.isChanged = false;
      if (!table.isForgettable(entry, nowMs)) continue;
      if (entry.state === "down") this.#deps.plan.forgotten(entry);
      this.end(entry);
      hasForgotten = true;
    }
    if (changed.length === 0 && !hasForgotten) return;
    this.#deps.plan.update();
    this.#count();
    for (const entry of changed) {
      const before = entry.toldState;
      entry.toldState = entry.state;
      this.#tell({ member: memberOf(entry), before, isForgotten: false });
    }
  }

  /** The entry is of no more use: its life was replaced by a later one, or it is forgotten. */
  end(entry: MemberEntry): void {
    this.#deps.unlink(entry);
    this.#deps.table.entries.delete(entry.record.origin.router);
    if (entry.toldState === undefined) return;
    const state = entry.state === "left" ? "left" : "down";
    this.#tell({ member: { ...memberOf(entry), state }, before: entry.toldState, isForgotten: true });
  }

  #become(entry: MemberEntry, state: Member["state"], nowMs: number): void {
    const { gossip, logger, meters, table } = this.#deps;
    const { origin, incarnation } = entry.record;
    logger.info(`a router is ${state}`, { router: origin.router, epoch: origin.epoch, was: entry.state });
    if (entry.state === undefined) gossip.changed(origin.router);
    entry.state = state;
    entry.stateSinceMs = nowMs;
    entry.isChanged = true;
    meters.became(state);
    if (state !== "suspect" && state !== "down") return;
    const claim: MemberClaim = { origin, incarnation, state };
    // That others have said so already makes this finding no less one of its own.
    if (table.claim(claim, undefined, nowMs) || state === "down") gossip.spread(claim, undefined);
  }

  #count(): void {
    const counts = { alive: 0, suspect: 0, down: 0, left: 0 };
    for (const { state } of this.#deps.table.entries.values()) if (state) counts[state] += 1;
    this.#deps.meters.members(counts);
  }

  #tell(change: MembershipChange): void {
    for (const listener of [...this.#listeners]) listener(change);
  }
}
