import type { Takeover } from "../model/sessions.ts";

/** Whether any of a lost router's sessions has come back; `none` where it had none. */
export function takeoverOutcome({ sessions, cameBack }: Takeover): "none" | "waiting" | "back" {
  if (sessions === 0) return "none";
  return cameBack === 0 ? "waiting" : "back";
}

/** What became of the sessions of a router that is gone. */
export function takeoverText({ sessions, cameBack, keptEngine }: Takeover): string {
  if (sessions === 0) return "It had served no session that was seen here.";
  const back = `Of its ${sessions} sessions ${cameBack} have come back elsewhere`;
  return cameBack === 0 ? `${back} so far.` : `${back}, ${keptEngine} of these to the engine that they were on.`;
}
