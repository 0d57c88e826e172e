import { type CapturedRequest, type CapturedSession, type CaptureFiles, readCaptureFiles } from "@espalier/bench";
import { decode } from "@msgpack/msgpack";

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
  const { sessions, requests, messages } = readCaptureFiles(folder);
  const engine = folder.includes("sglang") ? "sglang" : "vllm";
  const [major, minor] = /-(\d+)\.(\d+)/.exec(folder)!.slice(1).map(Number);
  return {
    engine,
    version: major! * 1_000 + minor!,
    sessions,
    requests,
    messages: readMessages(messages),
  };
}

/** The value after a command-line flag. */
export function argument(session: CapturedSession, flag: string): number | undefined {
  const at = session.args.indexOf(flag);
  return at < 0 ? undefined : Number(session.args[at + 1]);
}

interface RawStored {
  readonly hashes: readonly unknown[];
  readonly parent: unknown;
  readonly tokens: readonly number[];
  readonly space: string;
}

function readMessages(messages: CaptureFiles["messages"]): CapturedMessage[] {
  const epochs = new Map<string, ContentNames>();
  return messages.map(({ n, session, endpoint, frames }) => {
    const key = `${session}/${endpoint}`;
    const names = epochs.get(key) ?? createContentNames();
    epochs.set(key, names);
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
