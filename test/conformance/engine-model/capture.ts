import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { decode } from "@msgpack/msgpack";

/** One life of a captured engine. */
export interface CapturedSession {
  readonly session: number;
  readonly label: string;
  readonly args: readonly string[];
  readonly block_size: number;
  readonly num_blocks: number;
}

interface Usage {
  readonly prompt_tokens?: number;
  readonly completion_tokens?: number;
  readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
}

export interface CapturedRequest {
  readonly id: number;
  readonly session: number;
  readonly phase: string;
  readonly path: string;
  readonly t_start: number;
  readonly request: {
    readonly model?: string;
    readonly n?: number;
    readonly max_tokens?: number;
    readonly cache_salt?: string;
    readonly extra_key?: string;
    readonly tool_choice?: string;
    readonly vllm_xargs?: { readonly kv_cache_report_mode?: string };
  } | null;
  readonly request_headers?: Readonly<Record<string, string>>;
  readonly status: number;
  readonly response?: { readonly usage?: Usage } | string;
  readonly sse?: string;
  readonly aborted?: boolean;
  readonly prompt_token_ids?: readonly number[] | null;
  readonly output_token_ids?: readonly (readonly number[])[] | null;
  readonly events_from: number | null;
  readonly events_to: number | null;
}

/** One event in content: hashes are replaced by what they stand for. */
export type ContentEvent =
  | {
      readonly type: "stored";
      readonly blocks: readonly string[];
      readonly depth: number;
      readonly tokens: readonly number[];
    }
  | { readonly type: "removed"; readonly blocks: readonly string[] }
  | { readonly type: "cleared" };

export interface CapturedMessage {
  readonly n: number;
  readonly session: number;
  readonly endpoint: number;
  readonly events: readonly ContentEvent[];
  /** Whether it speaks of a second group of layers with blocks of its own. */
  readonly hybrid: boolean;
}

export interface Capture {
  readonly engine: "vllm" | "sglang";
  /** Major times 1,000 plus minor. */
  readonly version: number;
  readonly sessions: readonly CapturedSession[];
  readonly requests: readonly CapturedRequest[];
  readonly messages: readonly CapturedMessage[];
}

/** Reads one capture; the layout is described in the README beside the captures. */
export function readCapture(folder: string): Capture {
  const engine = folder.includes("sglang") ? "sglang" : "vllm";
  const [major, minor] = /-(\d+)\.(\d+)/.exec(folder)!.slice(1).map(Number);
  return {
    engine,
    version: major! * 1_000 + minor!,
    sessions: JSON.parse(readFileSync(join(folder, "sessions.json"), "utf8")) as CapturedSession[],
    requests: readLines<CapturedRequest>(join(folder, "requests.jsonl.gz")),
    messages: readMessages(folder),
  };
}

export function usageOf(request: CapturedRequest): Usage | undefined {
  if (typeof request.response === "object" && request.response.usage) return request.response.usage;
  for (const line of (request.sse ?? "").split("\n").reverse()) {
    if (!line.startsWith("data: {")) continue;
    const { usage } = JSON.parse(line.slice(6)) as { usage?: Usage | null };
    if (usage) return usage;
  }
  return undefined;
}

/** The value after a command-line flag. */
export function argument(session: CapturedSession, flag: string): number | undefined {
  const at = session.args.indexOf(flag);
  return at < 0 ? undefined : Number(session.args[at + 1]);
}

function readLines<Line>(path: string): Line[] {
  const text = gunzipSync(readFileSync(path)).toString();
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Line]));
}

interface RawStored {
  readonly hashes: readonly unknown[];
  readonly parent: unknown;
  readonly tokens: readonly number[];
  readonly space: string;
}

function readMessages(folder: string): CapturedMessage[] {
  const lives = new Map<string, ContentNames>();
  const lines = readLines<{ n: number; session: number; endpoint: number; frames: string[] }>(
    join(folder, "events.jsonl.gz"),
  );
  return lines.map(({ n, session, endpoint, frames }) => {
    const key = `${session}/${endpoint}`;
    const names = lives.get(key) ?? createContentNames();
    lives.set(key, names);
    const [, events] = decode(Buffer.from(frames[2]!, "base64"), { useBigInt64: true }) as [number, unknown[]];
    const hybrid = events.some((event) => Number(fieldOf(event, "group_idx", 9) ?? 0) > 0);
    return { n, session, endpoint, events: events.map((event) => toContent(event, names)), hybrid };
  });
}

/** A field of an event, which is an array up to vLLM 0.23 and a map since. */
function fieldOf(raw: unknown, name: string, index: number): unknown {
  return Array.isArray(raw) ? raw[index] : (raw as Record<string, unknown>)[name];
}

function toContent(raw: unknown, names: ContentNames): ContentEvent {
  const at = (name: string, index: number): unknown => fieldOf(raw, name, index);
  const type = at("type", 0);
  if (type === "AllBlocksCleared") return { type: "cleared" };
  const hashes = (at("block_hashes", 1) as unknown[]).map(hashName);
  if (type === "BlockRemoved") return { type: "removed", blocks: hashes.map((hash) => names.known(hash)) };
  const stored: RawStored = {
    hashes,
    parent: at("parent_block_hash", 2),
    tokens: (at("token_ids", 3) as unknown[]).map(Number),
    // What separates chains beside their tokens: extra keys (adapter, salt) on vLLM, the salt field on SGLang.
    space: JSON.stringify([
      (at("extra_keys", 8) as unknown[] | null | undefined)?.[0] ?? null,
      Array.isArray(raw) ? null : (at("cache_salt", -1) ?? null),
    ]),
  };
  return names.enter(stored);
}

function hashName(hash: unknown): string {
  return hash instanceof Uint8Array ? Buffer.from(hash).toString("hex") : String(hash);
}

/** Gives blocks names that depend on their content only: two engines name the same chain of tokens alike. */
interface ContentNames {
  enter(stored: RawStored): ContentEvent;
  known(hash: string): string;
}

export function createContentNames(): ContentNames {
  const byHash = new Map<string, { name: string; depth: number }>();
  return {
    enter({ hashes, parent, tokens, space }) {
      const above = parent === null || parent === undefined ? undefined : byHash.get(hashName(parent));
      const size = tokens.length / Math.max(1, hashes.length);
      const depth = above ? above.depth + 1 : 0;
      let name = above?.name ?? `root ${space}`;
      const blocks = hashes.map((hash, at) => {
        name = digest(name, tokens.slice(at * size, (at + 1) * size));
        byHash.set(hash as string, { name, depth: depth + at });
        return name;
      });
      return { type: "stored", blocks, depth, tokens };
    },
    known: (hash) => byHash.get(hash)?.name ?? `unknown ${hash}`,
  };
}

function digest(above: string, tokens: readonly number[]): string {
  let a = 0xcbf29ce4;
  let b = 0x84222325;
  for (const code of [...above].map((letter) => letter.charCodeAt(0)).concat(tokens)) {
    a = Math.imul(a ^ code, 0x01000193) + (b >>> 7);
    b = Math.imul(b + code, 0x85ebca6b) ^ (a >>> 11);
  }
  return (a >>> 0).toString(16).padStart(8, "0") + (b >>> 0).toString(16).padStart(8, "0");
}
