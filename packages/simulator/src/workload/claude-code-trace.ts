import type { LineFields, TraceFormatReader, TraceRow } from "./trace-line.ts";

/** The longest prompt of such a trace, in tokens: four times the largest context of models in use. */
const maxAgentPromptTokens = 2 ** 22;

/** Maximum block names that such a trace may keep in memory (256 MiB). Prompts that continue others share theirs. */
const maxAgentTraceBlocks = 2 ** 26;

/** Names of blocks are below this within a session, and below 2^32 in the whole trace. */
const maxLocalIds = 2 ** 24;
/** Names of blocks of the whole trace. */
const maxIds = 2 ** 32;

/** Sub-agents may start sub-agents of their own up to this depth. */
const maxDepth = 8;

/** Times are rounded to seconds: what ends within one after a request was sent had ended before it. */
const roundingMs = 1_000;

/**
 * Sessions of coding agents (callanjfox/kv-cache-tester, with `hash_ids` as runs `[first, count]`): JSON lines, one
 * session each, of `id`, `block_size`, `hash_id_scope` (`local`: the names of blocks mean something within the session
 * alone), `tool_tokens`, `system_tokens` and `requests`. A request has `t` (seconds from the session's start), `type`
 * (`n` or `s`, streamed), `in`, `out`, `hash_ids`, and may have `api_time` (how long the answer took) and `think_time`
 * (from the answer before it), in seconds. A request of type `subagent` has `requests` and `tool_tokens` of its own.
 *
 * Prompts begin with tools and system prompt. Sessions whose tools have the same number of tokens are taken to have the
 * same tools, and if the system prompts do, too, the same ones: the trace tells no more. These blocks have one name in
 * all sessions.
 *
 * A sub-agent's `t` is when its result was there: `duration_ms` before it, it starts, a second or less after the answer
 * that called for it. The times of its requests count from that start. The next request of the session waits for it,
 * unless it was sent while the sub-agent still worked.
 */
export function createClaudeCodeReader(): TraceFormatReader {
  const names = createBlockNames();
  const sessions = new Set<string>();
  return {
    readRows(line) {
      const session = line.object();
      const id = line.name("id", session.id);
      if (sessions.has(id)) line.fail("id", `${JSON.stringify(id)} names an earlier session`);
      sessions.add(id);
      if (session.hash_id_scope !== "local") line.fail("hash_id_scope", "must be local: no other is known");
      const blockTokens = line.count("block_size", session.block_size, 1);
      if (blockTokens > maxAgentPromptTokens) line.fail("block_size", `must be at most ${maxAgentPromptTokens}`);
      const rows: TraceRow[] = [];
      const context = { line, session: id, blockTokens, names: names.ofSession(line), rows };
      readAgent(context, session, { field: "", parent: undefined, startMs: 0, caller: undefined, depth: 0 });
      return rows;
    },
  };
}

interface SessionContext {
  readonly line: LineFields;
  readonly session: string;
  readonly blockTokens: number;
  readonly names: SessionNames;
  /** Receives the session's requests. */
  readonly rows: TraceRow[];
}

/** Where an agent's requests stand. */
interface AgentStart {
  /** Prefix of fields in messages. */
  readonly field: string;
  /** That of the agent that called for it; undefined for the session's own agent. */
  readonly parent: string | undefined;
  readonly startMs: number;
  /** The request whose answer called for it; undefined for the session's own agent. */
  readonly caller: AnsweredRow | undefined;
  readonly depth: number;
}

interface AnsweredRow {
  readonly row: TraceRow;
  readonly sentMs: number;
  /** When its answer had ended, as far as the trace tells. */
  readonly endMs: number;
}

/** @returns the agent's last request; undefined for none */
function readAgent(
  context: SessionContext,
  agent: Readonly<Record<string, unknown>>,
  { field, parent, startMs, caller, depth }: AgentStart,
): AnsweredRow | undefined {
  const { line } = context;
  if (!Array.isArray(agent.requests)) return line.fail(`${field}requests`, "must be a list of requests");
  const prefix = {
    toolTokens: line.count(`${field}tool_tokens`, agent.tool_tokens, 0),
    systemTokens: line.count(`${field}system_tokens`, agent.system_tokens, 0),
  };
  let last = caller;
  let own: AnsweredRow | undefined;
  let subAgents: AnsweredRow[] = [];
  for (const [at, value] of agent.requests.entries()) {
    const path = `${field}requests[${at}].`;
    const entry = objectOf(line, path, value);
    const atMs = seconds(line, `${path}t`, entry.t);
    if (entry.type === "subagent") {
      if (depth === maxDepth) line.fail(`${path}type`, `sub-agents within each other: more than ${maxDepth}`);
      const durationMs = entry.duration_ms == null ? 0 : line.number(`${path}duration_ms`, entry.duration_ms);
      const fromMs = Math.max(startMs + atMs - Math.max(0, durationMs), last?.sentMs ?? startMs);
      const ended = readAgent(context, entry, {
        field: path,
        parent: field,
        startMs: fromMs,
        caller: last,
        depth: depth + 1,
      });
      if (ended !== undefined) subAgents.push(ended);
      continue;
    }
    if (entry.type !== "n" && entry.type !== "s") line.fail(`${path}type`, "must be n, s or subagent");
    const sentMs = startMs + atMs;
    if (sentMs < (own?.sentMs ?? startMs)) line.fail(`${path}t`, "is before the request above it");
    const awaited = subAgents.filter((one) => one.endMs <= sentMs + roundingMs && one.sentMs <= sentMs);
    const after = [...(last === undefined ? [] : [last]), ...awaited];
    const freeMs = after.reduce((latest, one) => Math.max(latest, one.endMs), last === undefined ? startMs : 0);
    const thinkMs =
      entry.think_time === undefined || own === undefined || awaited.length > 0
        ? Math.max(0, sentMs - freeMs)
        : seconds(line, `${path}think_time`, entry.think_time);
    const answerMs = entry.api_time === undefined ? 0 : seconds(line, `${path}api_time`, entry.api_time);
    const row = readRequest(context, entry, { path, prefix: own === undefined ? prefix : undefined });
    own = {
      row: {
        ...row,
        ...agentOf(field, parent),
        timestampMs: sentMs,
        wait: { after: after.map((one) => one.row), thinkMs },
      },
      ...{ sentMs, endMs: sentMs + answerMs },
    };
    context.rows.push(own.row);
    last = own;
    subAgents = [];
  }
  // What was called for last is the end of this agent, for those who wait for it.
  return [...subAgents, ...(own === undefined ? [] : [own])].reduce<AnsweredRow | undefined>(
    (latest, one) => (latest === undefined || one.endMs > latest.endMs ? one : latest),
    undefined,
  );
}

/** An agent is named by its place in the session. */
function agentOf(field: string, parent: string | undefined): Pick<TraceRow, "agent"> {
  if (field === "") return {};
  const nameOf = (path: string): string => path.replace(/\.$/, "");
  return { agent: { name: nameOf(field), ...(parent && { parent: nameOf(parent) }) } };
}

interface Prefix {
  readonly toolTokens: number;
  readonly systemTokens: number;
}

function readRequest(
  { line, session, blockTokens, names }: SessionContext,
  entry: Readonly<Record<string, unknown>>,
  { path, prefix }: { readonly path: string; readonly prefix: Prefix | undefined },
): Omit<TraceRow, "timestampMs" | "wait"> {
  const inputTokens = line.count(`${path}in`, entry.in, 1);
  if (inputTokens > maxAgentPromptTokens) line.fail(`${path}in`, `must be at most ${maxAgentPromptTokens}`);
  const outputTokens = line.count(`${path}out`, entry.out, 0);
  const runs = readRuns(line, `${path}hash_ids`, entry.hash_ids, { inputTokens, blockTokens });
  if (prefix !== undefined) names.share(runs, prefix, { inputTokens, blockTokens });
  const { ids, sharedBlocks } = names.expand(runs, `${path}hash_ids`);
  return { inputTokens, outputTokens, blockIds: ids, blockTokens, sharedBlocks, session };
}

/** Consecutive names of blocks. */
interface Run {
  readonly first: number;
  readonly count: number;
}

function readRuns(
  line: LineFields,
  field: string,
  value: unknown,
  { inputTokens, blockTokens }: { readonly inputTokens: number; readonly blockTokens: number },
): readonly Run[] {
  if (!Array.isArray(value)) return line.fail(field, "must be a list of runs [first, count]");
  let blocks = 0;
  const runs = value.map((pair: unknown): Run => {
    if (!Array.isArray(pair) || pair.length !== 2) return line.fail(field, "must hold runs [first, count]");
    const first = line.count(field, pair[0], 0);
    const count = line.count(field, pair[1], 1);
    if (first + count > maxLocalIds) line.fail(field, `must hold numbers below ${maxLocalIds}`);
    blocks += count;
    return { first, count };
  });
  const full = Math.floor(inputTokens / blockTokens);
  const all = Math.ceil(inputTokens / blockTokens);
  if (blocks >= full && blocks <= all) return runs;
  return line.fail(field, `must name ${full} or ${all} blocks for ${inputTokens} tokens, names ${blocks}`);
}

/** Gives blocks their names in the whole trace. */
interface SessionNames {
  /** Notes that the beginning of an agent's first prompt, its tools and system prompt, is that of others. */
  share(
    runs: readonly Run[],
    prefix: Prefix,
    prompt: { readonly inputTokens: number; readonly blockTokens: number },
  ): void;
  /** The names of a prompt's blocks, which share memory with those of the prompt before it if this one continues it. */
  expand(runs: readonly Run[], field: string): { readonly ids: Uint32Array; readonly sharedBlocks: number };
}

/** Room for later prompts that continue one. */
const growth = 1.25;

function createBlockNames(): { ofSession(line: LineFields): SessionNames } {
  /** Blocks of single sessions are named from 0 up, those of several from the top down. */
  let nextId = 0;
  let lastSharedId = maxIds;
  /** First names of tools, by their size, and of system prompts, by both sizes. */
  const shared = new Map<string, number>();
  let keptBlocks = 0;

  const shareAs = (key: string, count: number): number => {
    const known = shared.get(key);
    if (known !== undefined) return known;
    lastSharedId -= count;
    shared.set(key, lastSharedId);
    return lastSharedId;
  };
  return {
    ofSession(line) {
      const base = nextId;
      /** Names in the trace by names in the session. */
      const sharedIds = new Map<number, number>();
      let longestShared = 0;
      /** Names of the prompt before, and of those that it continues. */
      let buffer = new Uint32Array(0);
      let length = 0;

      const idAt = (place: number, local: number): number =>
        (place < longestShared ? sharedIds.get(local) : undefined) ?? base + local;
      return {
        share(runs, { toolTokens, systemTokens }, { inputTokens, blockTokens }) {
          const tools = Math.floor(Math.min(toolTokens, inputTokens) / blockTokens);
          const both = Math.floor(Math.min(toolTokens + systemTokens, inputTokens) / blockTokens);
          const toolKey = `${blockTokens}/${tools}/${toolTokens}`;
          const toolId = shareAs(toolKey, tools);
          const systemId = shareAs(`${toolKey}/${both}/${systemTokens}`, both - tools);
          let place = 0;
          for (const { first, count } of runs) {
            for (let local = first; local < first + count && place < both; local++, place++) {
              if (!sharedIds.has(local))
                sharedIds.set(local, place < tools ? toolId + place : systemId + place - tools);
            }
          }
          longestShared = Math.max(longestShared, place);
        },
        expand(runs, field) {
          let count = 0;
          for (const run of runs) {
            count += run.count;
            nextId = Math.max(nextId, base + run.first + run.count);
          }
          if (nextId > lastSharedId) line.fail(field, `the trace names more than ${maxIds} blocks`);
          let same = 0;
          compare: for (const { first, count: blocks } of runs) {
            for (let local = first; local < first + blocks; local++, same++) {
              if (same === length || buffer[same] !== idAt(same, local)) break compare;
            }
          }
          if (same < count && (same < length || count > buffer.length)) {
            const room = Math.ceil(count * growth);
            keptBlocks += room;
            if (keptBlocks > maxAgentTraceBlocks)
              line.fail(field, `the trace has more than ${maxAgentTraceBlocks} blocks: set a limit`);
            const grown = new Uint32Array(room);
            grown.set(buffer.subarray(0, same));
            buffer = grown;
          }
          let place = 0;
          for (const { first, count: blocks } of runs) {
            for (let local = first; local < first + blocks; local++, place++) {
              if (place >= same) buffer[place] = idAt(place, local);
            }
          }
          if (same < count) length = count;
          const ids = buffer.subarray(0, count);
          let sharedBlocks = 0;
          // Names of several sessions are above all others.
          while (sharedBlocks < count && ids[sharedBlocks]! >= lastSharedId) sharedBlocks += 1;
          return { ids, sharedBlocks };
        },
      };
    },
  };
}

function objectOf(line: LineFields, path: string, value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  return line.fail(path.slice(0, -1), "must be an object");
}

/** Longer times than a year are mistakes. */
const maxSeconds = 366 * 86_400;

/** @returns milliseconds */
function seconds(line: LineFields, field: string, value: unknown): number {
  const time = line.number(field, value);
  if (time < 0 || time > maxSeconds) line.fail(field, `must be from 0 to ${maxSeconds} seconds`);
  return time * 1_000;
}
