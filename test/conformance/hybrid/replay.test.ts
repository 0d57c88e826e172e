import { readdirSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { createEventFold } from "@espalier/bench";
import { expect, test } from "vitest";

/** What `capture.py` writes: a header, then events and requests in order of time. Events of a request precede it. */
type CaptureLine =
  | { readonly events: string }
  | {
      readonly request: { readonly prompt: readonly number[]; readonly cached_tokens: number; readonly phase: string };
    };

interface CaptureHeader {
  readonly groups: readonly {
    readonly kind: string;
    readonly block_size: number;
    /** Tokens, of chunked local attention. */
    readonly attention_chunk_size?: number;
  }[];
}

const folder = new URL("captures/", import.meta.url);
const captures = readdirSync(folder).filter((name) => name.endsWith(".jsonl.gz"));

/**
 * Requests whose hit is read too short, where an event does not say what it would take to place a block: windows in blocks
 * smaller than those of full attention, if two prompts part inside a large block and share small ones; and hits inside
 * blocks, which only `--prefix-match-unit` brings about.
 */
const readShort: Readonly<Record<string, number>> = {
  "driven-blocks.jsonl.gz": 1,
  "driven-mamba2-unit.jsonl.gz": 39,
};

test.each(captures)("%s: what the events predict of each request is what vLLM reported", (name) => {
  const lines = gunzipSync(readFileSync(new URL(name, folder)))
    .toString()
    .trim()
    .split("\n");
  const header = JSON.parse(lines[0]!) as CaptureHeader;
  const full = header.groups.find(({ kind }) => kind.includes("full") || kind.startsWith("mla"))!;
  const chunk = header.groups.find(({ attention_chunk_size }) => attention_chunk_size)?.attention_chunk_size;
  const outcomes = compare(lines.slice(1), createEventFold(full.block_size, { chunkTokens: chunk }));
  const different = outcomes.filter(({ predicted, reported }) => predicted !== reported);
  expect(different.filter(({ predicted, reported }) => predicted > reported)).toEqual([]);
  expect(different).toHaveLength(readShort[name] ?? 0);
  // With one group nothing is gone while full attention is there. Else the captures are worth it: this is so in many requests.
  if (header.groups.length === 1) return;
  expect(outcomes.filter(({ held, reported }) => held > reported).length).toBeGreaterThan(outcomes.length / 20);
});

function compare(lines: readonly string[], fold: ReturnType<typeof createEventFold>) {
  const outcomes: { request: number; phase: string; predicted: number; reported: number; held: number }[] = [];
  let waiting: Buffer[] = [];
  for (const line of lines) {
    const record = JSON.parse(line) as CaptureLine;
    if ("events" in record) waiting.push(Buffer.from(record.events, "base64"));
    else {
      const { prompt, cached_tokens: reported, phase } = record.request;
      const { usable: predicted, held } = fold.match(Uint32Array.from(prompt), {
        adapter: undefined,
        cacheSalt: undefined,
      });
      outcomes.push({ request: outcomes.length, phase, predicted, reported, held });
      for (const payload of waiting) fold.apply(payload);
      waiting = [];
    }
  }
  expect(fold.undecoded).toBe(0);
  return outcomes;
}
