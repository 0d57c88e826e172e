import type { Decision } from "./decisions.ts";

/** One decision of a session, as its trail shows it. */
export interface Step {
  readonly router: string;
  readonly target: string;
  readonly atMs: number;
  /** Another engine than the step before. */
  readonly hasChangedTarget: boolean;
}

/** What was seen of a session, its latest steps in order of time. */
export interface SessionTrail {
  readonly session: string;
  readonly lastMs: number;
  readonly steps: readonly Step[];
}

/** Sessions that are kept, and steps of one. */
export const maxSessions = 400;
export const maxSteps = 12;

export type Sessions = ReadonlyMap<string, SessionTrail>;

/** Adds decisions to the trails of their sessions. */
export function followSessions(sessions: Sessions, decisions: readonly Decision[]): Sessions {
  const named = decisions.filter(({ session }) => session !== null);
  if (named.length === 0) return sessions;
  const next = new Map(sessions);
  for (const decision of [...named].sort((one, other) => one.atMs - other.atMs)) {
    const session = decision.session ?? "";
    const trail = extend(next.get(session), session, decision);
    // Moved to the end, so that those heard of longest ago come first.
    next.delete(session);
    next.set(session, trail);
  }
  const tooMany = next.size - maxSessions;
  for (const session of [...next.keys()].slice(0, Math.max(0, tooMany))) next.delete(session);
  return next;
}

function extend(trail: SessionTrail | undefined, session: string, { router, target, atMs }: Decision): SessionTrail {
  const last = trail?.steps.at(-1);
  const step: Step = {
    router,
    target,
    atMs,
    hasChangedTarget: last !== undefined && last.target !== target,
  };
  return { session, lastMs: atMs, steps: [...(trail?.steps ?? []), step].slice(-maxSteps) };
}

/** The sessions heard of last, the newest first, of those with at least two steps where there are any. */
export function latestTrails(sessions: Sessions, limit: number): readonly SessionTrail[] {
  const newest = [...sessions.values()].reverse();
  const long = newest.filter(({ steps }) => steps.length > 1);
  return (long.length > 0 ? long : newest).slice(0, limit);
}

/** What became of the sessions that a router served last when it went. */
export interface Takeover {
  readonly router: string;
  readonly goneMs: number;
  /** Sessions that it had served last. */
  readonly sessions: number;
  /** Of them those that have come back at another router, and those of these that met the same engine. */
  readonly cameBack: number;
  readonly keptEngine: number;
}

/** Sessions that are waited for when a router is gone: session -> the target that it was on. */
export interface LostRouter {
  readonly router: string;
  readonly goneMs: number;
  readonly homes: ReadonlyMap<string, string>;
}

/** Notes which sessions a router had served last. */
export function loseRouter(sessions: Sessions, router: string, goneMs: number): LostRouter {
  const served = [...sessions.values()].filter(({ steps }) => steps.at(-1)?.router === router);
  return { router, goneMs, homes: new Map(served.map(({ session, steps }) => [session, steps.at(-1)?.target ?? ""])) };
}

export function takeoverOf({ router, goneMs, homes }: LostRouter, sessions: Sessions): Takeover {
  let [cameBack, keptEngine] = [0, 0];
  for (const [session, home] of homes) {
    const next = sessions
      .get(session)
      ?.steps.find((step) => step.router !== router && step.atMs >= goneMs - clockSlackMs);
    if (!next) continue;
    cameBack += 1;
    if (next.target === home) keptEngine += 1;
  }
  return { router, goneMs, sessions: homes.size, cameBack, keptEngine };
}

/** Decisions carry their router's clock, the loss that of the page. */
const clockSlackMs = 250;
