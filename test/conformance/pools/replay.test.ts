import { createEventFold } from "@espalier/bench";
import { expect, test } from "vitest";
import { captureNames, type PoolCapture, readPoolCapture } from "./captures.ts";

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

test.each(captureNames)(
  "%s: what the events predict of each request is what the engine reported, outside its cache, too",
  (name) => {
    const capture = readPoolCapture(name);
    const dialect = name.startsWith("hicache") ? "sglang" : "vllm";
    const outcomes = compare(capture, createEventFold(capture.blockSize, { dialect }));
    expect(outcomes.filter(({ predicted, reported }) => predicted > reported)).toEqual([]);
    expect(outcomes.filter(({ predicted, reported }) => predicted < reported)).toHaveLength(readShort[name] ?? 0);
    // The captures are worth it: much was fetched.
    expect(outcomes.filter(({ fetched }) => fetched > 0).length).toBeGreaterThan(outcomes.length / 10);
  },
);

test("pages smaller than the router's blocks: what is predicted of each request is what SGLang reported, in whole blocks", () => {
  const blockSize = 16;
  const outcomes = compare(
    readPoolCapture("hicache-small-pages.jsonl.gz"),
    createEventFold(blockSize, { dialect: "sglang" }),
  );
  const differ = outcomes.filter(({ predicted, reported }) => predicted !== reported - (reported % blockSize));
  expect(differ).toEqual([]);
  expect(outcomes.filter(({ fetched }) => fetched > 0).length).toBeGreaterThan(outcomes.length / 10);
});

test.each(captureNames.filter((name) => name.startsWith("hicache")))("%s: SGLang names its two memories", (name) => {
  const media = new Set<string>();
  for (const message of readPoolCapture(name).requests.flatMap(({ messages }) => messages)) {
    const text = Buffer.from(message).toString("latin1");
    for (const [, medium] of text.matchAll(/medium[\xa0-\xbf](\w+)/g)) media.add(medium!);
  }
  expect([...media].sort()).toEqual(["CPU_PINNED", "GPU"]);
});

function compare({ requests }: PoolCapture, fold: ReturnType<typeof createEventFold>) {
  const outcomes = requests.map(({ prompt, cachedTokens: reported, messages }, request) => {
    const { usable: predicted, fetched } = fold.match(Uint32Array.from(prompt), {
      adapter: undefined,
      cacheSalt: undefined,
    });
    for (const message of messages) fold.apply(message);
    return { request, tokens: prompt.length, predicted, reported, fetched };
  });
  expect(fold.undecoded).toBe(0);
  return outcomes;
}
