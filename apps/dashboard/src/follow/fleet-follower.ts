import { type Decision, endDecisions, freshDecisions, mergeDecisions } from "../model/decisions.ts";
import type { FleetEvent } from "../model/events.ts";
import { type History, type Recent, recentOf, requestRateOf, type Series, seriesOf } from "../model/history.ts";
import type { Overview } from "../model/overview.ts";
import type { FollowedRouter } from "../model/rows.ts";
import {
  followSessions,
  type LostRouter,
  loseRouter,
  type Sessions,
  type Takeover,
  takeoverOf,
} from "../model/sessions.ts";
import { Follower, type FollowerPorts } from "./follower.ts";

interface FleetFollowerOptions {
  /** Where the page came from. */
  readonly home: string;
  /** Other origins that its content security policy allows. */
  readonly others: readonly string[];
  readonly key: () => string | undefined;
  readonly ports: FollowerPorts;
  /** The state has changed; called often. */
  readonly onChange: () => void;
  readonly onUnauthorized: () => void;
}

/** Everything that the page shows. */
export interface FleetState {
  /** The router whose view of the fleet is shown; undefined when none answers. */
  readonly source: Follower | undefined;
  /** Its latest view, kept when no router answers any more. */
  readonly overview: Overview | undefined;
  /** Since when no router answers; undefined while one does, and before the first one did. */
  readonly silentSinceMs: number | undefined;
  /** The last change of the source, and when. */
  readonly moved: { readonly from: string; readonly to: string; readonly atMs: number } | undefined;
  readonly followed: readonly FollowedRouter[];
  readonly live: readonly Overview[];
  readonly recent: Recent;
  /** Of each router, those of the source first. */
  readonly events: readonly (readonly FleetEvent[])[];
  readonly decisions: readonly Decision[];
  /** Decisions that routers made and did not send, because there were too many. */
  readonly skipped: number;
  readonly sessions: Sessions;
  readonly takeovers: readonly Takeover[];
}

/** Routers that were lost whose sessions are followed. */
const maxLost = 4;

export function createFleetFollower(options: FleetFollowerOptions): FleetFollower {
  const fleet = new FleetFollower(options);
  fleet.restart();
  return fleet;
}

/** Follows one router and, through it, the others. */
export class FleetFollower {
  readonly #options: FleetFollowerOptions;
  readonly #allowed: ReadonlySet<string>;
  readonly #followers = new Map<string, Follower>();
  #source: string | undefined;
  #moved: FleetState["moved"];
  #silentSinceMs: number | undefined;
  #overview: Overview | undefined;
  #decisions: readonly Decision[] = [];
  #skipped = 0;
  #sessions: Sessions = new Map();
  #lost: readonly LostRouter[] = [];

  constructor(options: FleetFollowerOptions) {
    this.#options = options;
    this.#allowed = new Set([options.home, ...options.others]);
  }

  /** Starts over, with another key. */
  restart(): void {
    for (const follower of this.#followers.values()) follower.stop();
    this.#followers.clear();
    this.#follow(this.#options.home);
  }

  /** The last fifteen minutes of all routers that were followed. */
  series(): Series {
    return seriesOf(this.#histories(), this.#options.ports.time.wallMs());
  }

  state(): FleetState {
    const followers = [...this.#followers.values()];
    const source = this.#source === undefined ? undefined : this.#followers.get(this.#source);
    return {
      source,
      overview: this.#overview,
      silentSinceMs: this.#silentSinceMs,
      moved: this.#moved,
      followed: followers.flatMap((follower) => this.#describe(follower)),
      live: this.#live().flatMap(({ overview }) => overview ?? []),
      recent: recentOf(this.#histories(), this.#options.ports.time.wallMs()),
      events: [source, ...followers.filter((follower) => follower !== source)].flatMap((each) => [
        each?.history.events ?? [],
      ]),
      decisions: this.#decisions,
      skipped: this.#skipped,
      sessions: this.#sessions,
      takeovers: this.#lost.map((lost) => takeoverOf(lost, this.#sessions)),
    };
  }

  #live(): readonly Follower[] {
    return [...this.#followers.values()].filter(({ isLive }) => isLive);
  }

  #histories(): readonly History[] {
    return [...this.#followers.values()].map(({ history }) => history);
  }

  #describe(follower: Follower): readonly FollowedRouter[] {
    const { origin, router, isLive, hasBeenLive, history, overview, killCommand } = follower;
    if (router === undefined) return [];
    const requestsPerS = requestRateOf(history, this.#options.ports.time.wallMs());
    const { status, traffic } = overview ?? {};
    const shown = { requestsPerS, inFlight: traffic?.inFlight ?? 0, status };
    return [{ router, origin, isLive, hasBeenLive, ...shown, killCommand }];
  }

  #follow(origin: string): void {
    const { key, ports, onUnauthorized } = this.#options;
    const follower = new Follower({
      ...{ origin, key, ports, onUnauthorized },
      mayRetry: () => this.#mayRetry(origin),
      onChange: () => this.#changed(),
      onDecisions: (decisions, skipped) => this.#decided(decisions, skipped),
      onEnds: (router, ends) => {
        this.#decisions = endDecisions(this.#decisions, router, ends);
        if (ends.length > 0) this.#options.onChange();
      },
      onLost: () => this.#wasLost(origin),
    });
    this.#followers.set(origin, follower);
  }

  /** No, while the live source reports that the router is gone. */
  #mayRetry(origin: string): boolean {
    const source = this.#source === undefined ? undefined : this.#followers.get(this.#source);
    if (!source?.isLive || !source.overview) return true;
    const router = this.#followers.get(origin)?.router;
    return source.overview.links.links.some((link) => link.router === router && link.state === "alive");
  }

  #changed(): void {
    const before = this.#source;
    this.#source = chooseSource(before, [...this.#followers.values()]);
    const source = this.#source === undefined ? undefined : this.#followers.get(this.#source);
    if (source) this.#silentSinceMs = undefined;
    else if (before !== undefined) this.#silentSinceMs ??= this.#options.ports.time.wallMs();
    if (before !== undefined && source && source.origin !== before) {
      const from = this.#followers.get(before)?.router ?? before;
      this.#moved = { from, to: source.router ?? source.origin, atMs: this.#options.ports.time.wallMs() };
    }
    // The last view stays when no router answers.
    this.#overview = source?.overview ?? this.#overview;
    const named = source?.overview?.links.links.flatMap(({ admin, state }) =>
      state === "alive" && admin ? [admin] : [],
    );
    const fresh = routersToFollow({
      followed: [...this.#followers.keys()],
      named: named ?? [],
      allowed: this.#allowed,
    });
    for (const origin of fresh) this.#follow(origin);
    // The lost source is kept, so that the change to the next one is shown.
    this.#source ??= before;
    this.#options.onChange();
  }

  #decided(decisions: readonly Decision[], skipped: number): void {
    this.#skipped += skipped;
    const fresh = freshDecisions(this.#decisions, decisions);
    if (fresh.length === 0) return;
    this.#decisions = mergeDecisions(this.#decisions, fresh);
    this.#sessions = followSessions(this.#sessions, fresh);
    this.#options.onChange();
  }

  #wasLost(origin: string): void {
    const router = this.#followers.get(origin)?.router;
    if (router === undefined) return;
    const lost = loseRouter(this.#sessions, router, this.#options.ports.time.wallMs());
    this.#lost = [lost, ...this.#lost.filter((one) => one.router !== router)].slice(0, maxLost);
  }
}

/** A router that may be the source. */
interface Candidate {
  readonly origin: string;
  /** It is connected and has sent its overview. */
  readonly isLive: boolean;
}

/**
 * The router whose view of the fleet the page shows. The current one stays while it is live, so that the page does not jump.
 *
 * @returns undefined when none is live
 */
export function chooseSource(current: string | undefined, candidates: readonly Candidate[]): string | undefined {
  const live = candidates.filter(({ isLive }) => isLive);
  return (live.find(({ origin }) => origin === current) ?? live[0])?.origin;
}

/** Routers that are followed at a time. */
export const maxFollowed = 16;

interface FollowChoice {
  /** Followed now, oldest first. */
  readonly followed: readonly string[];
  /** Named by routers that are followed. */
  readonly named: readonly string[];
  /** Origins that the page's content security policy allows. */
  readonly allowed: ReadonlySet<string>;
}

/** The routers to follow in addition. */
export function routersToFollow({ followed, named, allowed }: FollowChoice): readonly string[] {
  const fresh = [...new Set(named)].filter((origin) => allowed.has(origin) && !followed.includes(origin));
  return fresh.slice(0, Math.max(0, maxFollowed - followed.length));
}
