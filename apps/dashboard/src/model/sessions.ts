import type { Decision } from "./decisions.ts";

/** One decision of a session, as its trail shows it. */
interface Step {
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
/** Latest steps of a session that are kept. */
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
    // Moved to the end: the least recent come first.
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

/** The latest sessions, newest first; only those of two or more steps where there are any. */
export function latestTrails(sessions: Sessions, limit: number): readonly SessionTrail[] {
  const newest = [...sessions.values()].reverse();
  const long = newest.filter(({ steps }) => steps.length > 1);
  return (long.length > 0 ? long : newest).slice(0, limit);
}

/** What became of the sessions of a router that was lost. */
export interface Takeover {
  readonly router: string;
  readonly goneMs: number;
  /** Sessions whose latest step it had served. */
  readonly sessions: number;
  /** Those that have come back at another router, and those of them that went to the same engine. */
  readonly cameBack: number;
  readonly keptEngine: number;
}

/** A router that is gone, and the target of each of its sessions. */
export interface LostRouter {
  readonly router: string;
  readonly goneMs: number;
  readonly targets: ReadonlyMap<string, string>;
}

/** The sessions whose latest step a router served. */
export function loseRouter(sessions: Sessions, router: string, goneMs: number): LostRouter {
  const served = [...sessions.values()].filter(({ steps }) => steps.at(-1)?.router === router);
  return {
    router,
    goneMs,
    targets: new Map(served.map(({ session, steps }) => [session, steps.at(-1)?.target ?? ""])),
  };
}

/** Decisions carry their router's clock, the loss that of the page. */
const clockSlackMs = 250;

export function takeoverOf({ router, goneMs, targets }: LostRouter, sessions: Sessions): Takeover {
  let [cameBack, keptEngine] = [0, 0];
  for (const [session, target] of targets) {
    const next = sessions
      .get(session)
      ?.steps.find((step) => step.router !== router && step.atMs >= goneMs - clockSlackMs);
    if (!next) continue;
    cameBack += 1;
    if (next.target === target) keptEngine += 1;
  }
  return { router, goneMs, sessions: targets.size, cameBack, keptEngine };
}

/** Whether any session of a lost router has come back; `none` where it had none. */
export function takeoverOutcome({ sessions, cameBack }: Takeover): "none" | "waiting" | "back" {
  if (sessions === 0) return "none";
  return cameBack === 0 ? "waiting" : "back";
}

/** What became of the sessions of a router that is gone. */
export function takeoverText({ sessions, cameBack, keptEngine }: Takeover): string {
  if (sessions === 0) return "No session of this router was seen.";
  const back = `${cameBack} of its ${sessions} sessions resumed on other routers`;
  return cameBack === 0 ? `${back} so far.` : `${back}, ${keptEngine} of these on the same engine.`;
}
