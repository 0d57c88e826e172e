import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";

/** A request of a recorded session, or a sub-agent that has requests. Times and lengths stay as they are. */
interface Recorded {
  readonly type: string;
  /** Ranges of block numbers, each the first one and how many. */
  readonly hash_ids?: readonly (readonly [number, number])[];
  readonly requests?: readonly Recorded[];
}

interface RecordedSession extends Recorded {
  readonly id: string;
  readonly models: readonly string[];
  readonly requests: readonly Recorded[];
}

/**
 * Writes sessions of coding agents into a folder as `aiperf --custom-dataset-type weka_trace` reads them: a file each, with
 * every block's number, and all fields that it requires of a sub-agent.
 *
 * @param traceFile sessions as `espalier replay --format claude-code` reads them, compressed by gzip
 */
export function writeAgentTraces(traceFile: string, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const lines = gunzipSync(readFileSync(traceFile)).toString().trimEnd().split("\n");
  for (const session of lines.map((line) => JSON.parse(line) as RecordedSession)) {
    const { models } = session;
    writeFileSync(join(folder, `${session.id}.json`), JSON.stringify({ ...session, ...requestsOf(session, models) }));
  }
}

function requestsOf({ requests = [] }: Recorded, models: readonly string[]): object {
  const written = requests.map((request, at) => {
    const { hash_ids: ranges = [], type, ...rest } = request;
    if (type !== "subagent") {
      const ids = ranges.flatMap(([first, count]) => Array.from({ length: count }, (_, next) => first + next));
      return { ...rest, type, hash_ids: ids };
    }
    const agent = { agent_id: `agent_${at}`, subagent_type: "Task", status: "completed", models };
    return { ...agent, ...rest, type, ...requestsOf(request, models) };
  });
  return { requests: written };
}
