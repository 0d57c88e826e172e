import { readdirSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

/**
 * What `capture.py` and `hicache.py` write: a header, then events and requests in order of time. Events of a request
 * precede it.
 */
type CaptureLine =
  | { readonly events: string }
  | {
      readonly request: {
        readonly prompt: readonly number[];
        readonly output: readonly number[];
        readonly cached_tokens: number;
      };
    };

interface CaptureHeader {
  readonly kind: string;
  readonly groups: readonly [{ readonly block_size: number }];
  /** Of vLLM: its command line, and blocks of GPU memory. */
  readonly arguments?: readonly string[];
  readonly num_blocks?: number;
  /** Of SGLang: HiCache's write policy, and the sizes of its memories. */
  readonly policy?: string;
  readonly device_tokens?: number;
  readonly host_tokens?: number;
}

export interface CapturedPrompt {
  readonly prompt: readonly number[];
  readonly output: readonly number[];
  readonly cachedTokens: number;
  /** Encoded messages of the engine, since the request before. */
  readonly messages: readonly Uint8Array[];
}

export interface PoolCapture {
  readonly header: CaptureHeader;
  readonly blockSize: number;
  readonly requests: readonly CapturedPrompt[];
}

const folder = new URL("captures/", import.meta.url);

/** Of one engine each. Those of a Mooncake Store are of several. */
export const captureNames: readonly string[] = readdirSync(folder).filter(
  (name) => name.endsWith(".jsonl.gz") && !name.startsWith("mooncake"),
);

export function readPoolCapture(name: string): PoolCapture {
  const [first, ...lines] = gunzipSync(readFileSync(new URL(name, folder)))
    .toString()
    .trim()
    .split("\n");
  const header = JSON.parse(first!) as CaptureHeader;
  const requests: CapturedPrompt[] = [];
  let messages: Buffer[] = [];
  for (const line of lines) {
    const record = JSON.parse(line) as CaptureLine;
    if ("events" in record) {
      messages.push(Buffer.from(record.events, "base64"));
      continue;
    }
    const { prompt, output, cached_tokens: cachedTokens } = record.request;
    requests.push({ prompt, output, cachedTokens, messages });
    messages = [];
  }
  return { header, blockSize: header.groups[0].block_size, requests };
}
