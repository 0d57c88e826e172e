import type { TraceRequest } from "./trace-request.ts";

/** The requests of one session, in order of arrival. */
export type TraceSession = readonly TraceRequest[];

/**
 * The sessions of a trace, in the order in which they begin.
 *
 * @returns undefined unless the trace says of every request what it waits for
 */
export function traceSessions(requests: readonly TraceRequest[]): readonly TraceSession[] | undefined {
  const sessions = new Map<string, TraceRequest[]>();
  for (const request of requests) {
    if (request.wait === undefined) return undefined;
    const session = sessions.get(request.session);
    if (session === undefined) sessions.set(request.session, [request]);
    else session.push(request);
  }
  return [...sessions.values()];
}

/** What a session needs of whoever runs it. */
export interface SessionPorts {
  /** Runs `task` after a delay of the trace. Without that call, the session goes no further. */
  after(delayMs: number, task: () => void): void;
  /** @param ended called once, when the answer has ended or failed */
  send(request: TraceRequest, ended: () => void): void;
}

/**
 * Sends the requests of one session as its client would: each when the answers that it waits for have ended, and the
 * client has thought. A failed request counts as answered. Requests that wait for the same answer run beside each other,
 * as sub-agents do.
 *
 * @param session whose first turn is 0, as `traceSessions` gives them
 * @param done called after the last answer
 */
export function runTraceSession(session: TraceSession, ports: SessionPorts, done: () => void): void {
  const missing = session.map(({ wait }) => wait?.after.length ?? 0);
  const followers = session.map((): number[] => []);
  for (const [turn, { wait }] of session.entries()) {
    for (const earlier of wait?.after ?? []) followers[earlier]!.push(turn);
  }
  let unanswered = session.length;
  const begin = (turn: number): void => {
    const request = session[turn]!;
    ports.after(request.wait?.thinkMs ?? 0, () => ports.send(request, () => answered(turn)));
  };
  const answered = (turn: number): void => {
    unanswered -= 1;
    if (unanswered === 0) done();
    for (const follower of followers[turn]!) {
      missing[follower]! -= 1;
      if (missing[follower] === 0) begin(follower);
    }
  };
  for (const [turn, count] of missing.entries()) if (count === 0) begin(turn);
}
