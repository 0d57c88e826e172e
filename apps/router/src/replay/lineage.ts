import { RecencyMap } from "@espalier/core";

/** What a recording says of a request's place in its session. */
export interface Lineage {
  /** Place among the requests of its program, its session's agent, from 0 in order of their ends. */
  readonly turn: number;
  /** Earlier requests whose answers it waited for. */
  readonly after: readonly number[];
  /** Milliseconds from the last end of these to its own beginning; 0 where it waited for none. */
  readonly pauseMs: number;
}

/** A request that has ended, as routers tell of it. */
interface Ended {
  readonly model: string;
  readonly session: number | null;
  readonly agent: number | null;
  readonly parentAgent: number | null;
  readonly atMs: number;
  readonly durationMs: number;
}

/** Sessions whose latest requests are remembered; of one that was idle longer, the next request begins anew. */
export const maxSessions = 16_384;
/** Agents of a session that are remembered, the session's own included. */
export const maxAgents = 64;
/** Latest ends of an agent that are remembered: as many requests of one may run beside each other. */
export const maxEnds = 8;
/** Routers' clocks may differ by so much. */
const clockSlackMs = 250;

interface End {
  readonly chat: number;
  readonly atMs: number;
  readonly endMs: number;
}

interface Agent {
  /** Null for the session's own. */
  readonly name: number | null;
  readonly parent: number | null;
  turns: number;
  /** In the order in which routers told of them. */
  ends: readonly End[];
}

/**
 * Places each request in its session. A request waits for the one before it of its agent, and for the sub-agents of that
 * one that have ended meanwhile; the first request of a sub-agent waits for the agent that began it. Requests beside each
 * other do not wait for each other.
 *
 * @returns takes requests in the order of their ends; `chat` is a request's number in the recording
 */
export function createLineages(): (request: Ended, chat: number) => Lineage {
  const sessions = new RecencyMap<string, RecencyMap<number | null, Agent>>();
  return ({ model, session, agent, parentAgent, atMs, durationMs }, chat) => {
    if (session === null) return { turn: 0, after: [], pauseMs: 0 };
    const key = `${session}/${model}`;
    const agents = sessions.use(key) ?? new RecencyMap<number | null, Agent>();
    sessions.set(key, agents);
    if (sessions.size > maxSessions) sessions.deleteOldest();
    const own: Agent = agents.use(agent) ?? { name: agent, parent: parentAgent, turns: 0, ends: [] };
    agents.set(agent, own);
    if (agents.size > maxAgents) agents.deleteOldest();

    /** The latest answer of an agent that ended before this request, and was asked for before it. */
    const latestOf = (one: Agent | undefined): End | undefined =>
      one?.ends
        .filter((end) => end.endMs <= atMs + clockSlackMs && end.atMs <= atMs)
        .reduce<End | undefined>((latest, end) => (latest && latest.endMs > end.endMs ? latest : end), undefined);
    const before = latestOf(own) ?? (agent === null ? undefined : latestOf(agents.get(own.parent)));
    const subAgents = [...agents.values()].flatMap((one) => {
      const last = one.name !== null && one.name !== agent && one.parent === agent ? latestOf(one) : undefined;
      return last && before && last.endMs > before.endMs && own.ends.includes(before) ? [last] : [];
    });
    const waited = [...(before ? [before] : []), ...subAgents];
    const lastMs = Math.max(...waited.map(({ endMs }) => endMs));
    own.ends = [...own.ends, { chat, atMs, endMs: atMs + durationMs }].slice(-maxEnds);
    return {
      turn: own.turns++,
      after: waited.map((end) => end.chat),
      pauseMs: waited.length === 0 ? 0 : Math.max(0, atMs - lastMs),
    };
  };
}
