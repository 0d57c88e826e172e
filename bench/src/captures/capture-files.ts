import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { gunzipSync } from "node:zlib";

/** One epoch of a captured engine. */
export interface CapturedSession {
  readonly session: number;
  readonly label: string;
  readonly args: readonly string[];
  readonly block_size: number;
  readonly num_blocks: number;
  readonly model: string;
  readonly "/v1/models"?: { readonly data: readonly { readonly id: string; readonly parent?: string | null }[] };
}

export interface CapturedUsage {
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
    readonly [field: string]: unknown;
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
  readonly response?: { readonly usage?: CapturedUsage } | string;
  readonly sse?: string;
  readonly aborted?: boolean;
  readonly prompt_token_ids?: readonly number[] | null;
  readonly output_token_ids?: readonly (readonly number[])[] | null;
  readonly events_from: number | null;
  readonly events_to: number | null;
}

/** One engine message, in order of receipt. */
interface CapturedFrames {
  readonly n: number;
  readonly session: number;
  /** 0 for the base port, r for data-parallel rank r. */
  readonly endpoint: number;
  /** Topic, sequence and payload in base64. */
  readonly frames: readonly string[];
}

/** One exchange with a replay socket. */
export interface CapturedReplay {
  readonly session: number;
  readonly label: string;
  readonly port_offset: number;
  readonly start: number;
  readonly replies: readonly { readonly frames: readonly string[] }[];
}

/** The recording of one engine version. The README next to the captures describes the layout. */
export interface CaptureFiles {
  /** Name of the capture's folder. */
  readonly name: string;
  readonly sessions: readonly CapturedSession[];
  readonly requests: readonly CapturedRequest[];
  readonly messages: readonly CapturedFrames[];
  readonly replays: readonly CapturedReplay[];
}

/** Folders under `folder` that hold a capture. */
export function captureFolders(folder: string): readonly string[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => join(folder, name))
    .filter((path) => readdirSync(path).includes("events.jsonl.gz"))
    .sort();
}

/** @throws Error from the file system, or for a file with unexpected content */
export function readCaptureFiles(folder: string): CaptureFiles {
  return {
    name: basename(folder),
    sessions: JSON.parse(readFileSync(join(folder, "sessions.json"), "utf8")) as CapturedSession[],
    requests: readLines<CapturedRequest>(join(folder, "requests.jsonl.gz")),
    messages: readLines<CapturedFrames>(join(folder, "events.jsonl.gz")),
    replays: readdirSync(folder).includes("replay.jsonl.gz")
      ? readLines<CapturedReplay>(join(folder, "replay.jsonl.gz"))
      : [],
  };
}

/** What the engine counted for a request; for a stream, the last event with a count. */
export function usageOf(request: CapturedRequest): CapturedUsage | undefined {
  if (typeof request.response === "object" && request.response.usage) return request.response.usage;
  for (const line of (request.sse ?? "").split("\n").reverse()) {
    if (!line.startsWith("data: {")) continue;
    const { usage } = JSON.parse(line.slice(6)) as { usage?: CapturedUsage | null };
    if (usage) return usage;
  }
  return undefined;
}

function readLines<Line>(path: string): Line[] {
  const text = gunzipSync(readFileSync(path)).toString();
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Line]));
}
