import { readdirSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { createEventFold } from "@espalier/bench";
import { expect, test } from "vitest";

/**
 * What `capture.py` and `hicache.py` write: a header, then events and requests in order of time. Events of a request
 * precede it.
 */
type CaptureLine =
  | { readonly events: string }
  | { readonly request: { readonly prompt: readonly number[]; readonly cached_tokens: number } };

interface CaptureHeader {
  readonly groups: readonly [{ readonly block_size: number }];
}

const folder = new URL("captures/", import.meta.url);
const captures = readdirSync(folder).filter((name) => name.endsWith(".jsonl.gz"));

/**
 * Requests whose hit is read too short. If a prompt fills its last block, vLLM fetches that block, too, and computes its
 * last token again.
 */
const readShort: Readonly<Record<string, number>> = {
  "lmcache.jsonl.gz": 2,
  "offloading.jsonl.gz": 3,
  "offloading-chunks.jsonl.gz": 1,
  "offloading-hashes.jsonl.gz": 3,
};

/**
 * Requests whose hit is read too long. SGLang fetches nothing where that brings fewer than 10 tokens, which only pages of
 * fewer tokens can do.
 */
const readLong: Readonly<Record<string, number>> = { "hicache-small-pages.jsonl.gz": 2 };
const sglangMinFetch = 10;

test.each(captures)(
  "%s: what the events predict of each request is what the engine reported, outside its cache, too",
  (name) => {
    const { lines, blockSize } = read(name);
    const outcomes = compare(lines, createEventFold(blockSize));
    const long = outcomes.filter(({ predicted, reported }) => predicted > reported);
    expect(long).toHaveLength(readLong[name] ?? 0);
    for (const { predicted, reported, fetched } of long) {
      expect(predicted - reported).toBe(fetched);
      expect(fetched).toBeLessThan(sglangMinFetch);
    }
    expect(outcomes.filter(({ predicted, reported }) => predicted < reported)).toHaveLength(readShort[name] ?? 0);
    // The captures are worth it: much was fetched.
    expect(outcomes.filter(({ fetched }) => fetched > 0).length).toBeGreaterThan(outcomes.length / 10);
  },
);

test("pages smaller than the router's blocks: what is predicted of each request is what SGLang reported, in whole blocks", () => {
  const { lines } = read("hicache-small-pages.jsonl.gz");
  const blockSize = 16;
  const outcomes = compare(lines, createEventFold(blockSize));
  const differ = outcomes.filter(({ predicted, reported }) => predicted !== reported - (reported % blockSize));
  expect(differ).toEqual([]);
  expect(outcomes.filter(({ fetched }) => fetched > 0).length).toBeGreaterThan(outcomes.length / 10);
});

test.each(captures.filter((name) => name.startsWith("hicache")))("%s: SGLang names its two memories", (name) => {
  const media = new Set<string>();
  for (const line of read(name).lines) {
    const record = JSON.parse(line) as CaptureLine;
    if (!("events" in record)) continue;
    for (const [, medium] of Buffer.from(record.events, "base64")
      .toString("latin1")
      .matchAll(/medium[\xa0-\xbf](\w+)/g))
      media.add(medium!);
  }
  expect([...media].sort()).toEqual(["CPU_PINNED", "GPU"]);
});

function read(name: string): { lines: string[]; blockSize: number } {
  const [header, ...lines] = gunzipSync(readFileSync(new URL(name, folder)))
    .toString()
    .trim()
    .split("\n");
  const { groups } = JSON.parse(header!) as CaptureHeader;
  return { lines, blockSize: groups[0].block_size };
}

function compare(lines: readonly string[], fold: ReturnType<typeof createEventFold>) {
  const outcomes: { request: number; tokens: number; predicted: number; reported: number; fetched: number }[] = [];
  let waiting: Buffer[] = [];
  for (const line of lines) {
    const record = JSON.parse(line) as CaptureLine;
    if ("events" in record) {
      waiting.push(Buffer.from(record.events, "base64"));
      continue;
    }
    const { prompt, cached_tokens: reported } = record.request;
    const { usable: predicted, fetched } = fold.match(Uint32Array.from(prompt), {
      adapter: undefined,
      cacheSalt: undefined,
    });
    outcomes.push({ request: outcomes.length, tokens: prompt.length, predicted, reported, fetched });
    for (const payload of waiting) fold.apply(payload);
    waiting = [];
  }
  expect(fold.undecoded).toBe(0);
  return outcomes;
}
