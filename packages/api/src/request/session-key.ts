import { isJsonObject, type JsonBody, parseJson } from "@espalier/core";
import type { RequestView, SessionFields } from "./request-view.ts";

/**
 * One source of a session key. Header names are in lower case; a field of the body may be a path, with dots. `prefix` has
 * no name, and gives no key: without one, a conversation that goes on is a program all the same.
 */
export interface SessionKeySource {
  readonly from: "header" | "body" | "prefix";
  readonly name: string;
  /** Another header, or another field, that names an agent of the session; absent where its agents share a key. */
  readonly agent?: string;
}

/** The session of a request. */
export interface FoundSession {
  readonly key: string;
  /** The session's own key, and what its agent is called; undefined for the session's own. */
  readonly session: string;
  readonly agent: string | undefined;
  /** Key of the session, or of the agent in it, that started this one; absent for one without a known parent. */
  readonly parent?: string;
  readonly source: SessionKeySource;
}

/** Longest session key, in UTF-16 units. */
const maxSessionKeyLength = 1_024;
/** Longest text whose JSON is searched for a session key, in bytes: the limit of vLLM Router for `agentic_context`. */
const maxEncodedBytes = 16_384;

/** Not among the defaults: it costs each request without a key 5 us. */
export const prefixSource: SessionKeySource = { from: "prefix", name: "" };

/**
 * The default sources of a session key, in order of precedence: ours, what coding agents send, what other routers read.
 * `docs/decisions/0053-an-agent-is-a-session.md` says who sends what.
 */
export const defaultSessionKeyLadder: readonly SessionKeySource[] = [
  { from: "header", name: "x-espalier-session-id" },
  { from: "header", name: "x-session-id" },
  { from: "header", name: "x-smg-routing-key" },
  { from: "header", name: "x-claude-code-session-id", agent: "x-claude-code-agent-id" },
  { from: "header", name: "session-id", agent: "thread-id" },
  { from: "header", name: "session_id", agent: "thread_id" },
  { from: "header", name: "x-session-affinity" },
  { from: "header", name: "x-opencode-session" },
  { from: "header", name: "x-dynamo-session-id" },
  { from: "body", name: "session_id" },
  { from: "body", name: "vllm_xargs.agentic_context.program_id" },
  {
    from: "body",
    name: "vllm_xargs.agentic_context.session_id",
    agent: "vllm_xargs.agentic_context.agent_id",
  },
  { from: "body", name: "agent_hint.session_id" },
  { from: "body", name: "session_params.id" },
  { from: "body", name: "prompt_cache_key" },
  { from: "body", name: "user" },
];

/** Where clients name the parent of an agent, or of a session, by the name of the session's own source. */
const parentNames: ReadonlyMap<string, string> = new Map([
  ["x-session-id", "x-parent-session-id"],
  ["x-claude-code-session-id", "x-claude-code-parent-agent-id"],
  ["session-id", "x-codex-parent-thread-id"],
  ["session_id", "x-codex-parent-thread-id"],
  ["x-session-affinity", "x-parent-session-id"],
  ["x-opencode-session", "x-parent-session-id"],
  ["x-dynamo-session-id", "x-dynamo-parent-session-id"],
  ["vllm_xargs.agentic_context.program_id", "vllm_xargs.agentic_context.parent_program_id"],
]);

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/**
 * The first session key that the ladder finds; empty values are skipped. The key of an agent begins with its session's.
 *
 * @param view undefined where the body is not known
 * @param headers request headers, names in lower case; of a repeated header the first value counts
 * @returns at most 1,024 characters of the key
 */
export function findSession(
  ladder: readonly SessionKeySource[],
  headers: Headers,
  view: RequestView | undefined,
): FoundSession | undefined {
  for (const source of ladder) {
    const { from, name, agent: agentName } = source;
    if (from === "prefix") continue;
    const session = valueAt(from, name, headers, view);
    if (session === undefined || session === "") continue;
    const named = agentName && valueAt(from, agentName, headers, view);
    // Codex names its first thread like the session.
    const agent = named && named !== session ? named : undefined;
    const key = keyOfAgent(session, agent);
    const found = { key: key.slice(0, maxSessionKeyLength), session, agent, source };
    const parentName = parentNames.get(name);
    const parentNamed = parentName && valueAt(from, parentName, headers, view);
    // An agent whose parent is not named was started by the session's main agent.
    const parent = agentName ? agent && keyOfAgent(session, parentNamed) : parentNamed;
    return parent && parent !== key ? { ...found, parent: parent.slice(0, maxSessionKeyLength) } : found;
  }
  return undefined;
}

/** The agent that began a session's agent; undefined for the session's own, and where the client does not say. */
export function findParentAgent({ agent, session, source }: FoundSession, headers: Headers): string | undefined {
  const name = agent === undefined ? undefined : parentNames.get(source.name);
  const parent = name === undefined ? undefined : headerValue(headers, name);
  return parent === "" || parent === session || parent === agent ? undefined : parent;
}

const keyOfAgent = (session: string, agent: string | undefined): string =>
  agent && agent !== session ? `${session}/${agent}` : session;

/** A source in the configuration: `header:NAME` or `body:FIELD`, with the agent's where there is one; or `prefix`. */
export function nameOfSource({ from, name, agent }: SessionKeySource): string {
  if (from === "prefix") return from;
  return agent === undefined ? `${from}:${name}` : `${from}:${name}/${agent}`;
}

function valueAt(
  from: "header" | "body",
  name: string,
  headers: Headers,
  view: RequestView | undefined,
): string | undefined {
  return from === "header" ? headerValue(headers, name) : bodyValue(view, name);
}

function headerValue(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value : value?.[0];
}

function bodyValue(view: RequestView | undefined, name: string): string | undefined {
  if (!view) return undefined;
  if (Object.hasOwn(view.bodySession, name)) return view.bodySession[name as keyof SessionFields];
  return textAt(view.body, name);
}

/** The text at a path of the body. Only keys on the way are compared; nothing is parsed. */
function textAt(body: JsonBody, path: string): string | undefined {
  let object = 0;
  for (let from = 0; ; ) {
    const dot = path.indexOf(".", from);
    const node = body.member(dot === -1 ? path.slice(from) : path.slice(from, dot), object);
    if (node === undefined) return undefined;
    const kind = body.kindOf(node);
    if (dot === -1) return kind === "string" ? body.textOf(node) : undefined;
    if (kind === "string") return encodedText(body, node, path.slice(dot + 1));
    if (kind !== "object") return undefined;
    object = node;
    from = dot + 1;
  }
}

/** The text at a path of JSON in a string: vLLM's `vllm_xargs` takes no objects, so clients encode them. */
function encodedText(body: JsonBody, node: number, path: string): string | undefined {
  if (body.textBytes(node) > maxEncodedBytes) return undefined;
  let value = parseJson(body.textOf(node));
  for (const name of path.split(".")) {
    if (!isJsonObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return typeof value === "string" ? value : undefined;
}
