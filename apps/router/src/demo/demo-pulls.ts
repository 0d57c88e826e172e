import { createSeededRandom, layOutTable, systemClock } from "@espalier/core";
import type { ChatMessage } from "@espalier/simulator";
import { type Answer, createLoadClient } from "@espalier/simulator";
import { groupDigits } from "../output.ts";
import { wait } from "../signals.ts";

/** The preset whose engines lend each other blocks in the demo: its times are published. */
export const pullPreset = "h200-gpt-oss-120b";

export interface PullStory {
  readonly urls: readonly string[];
  readonly model: string;
  readonly signal: AbortSignal;
}

/** What a router says of a pull in `x-espalier-kv-source`. Times in milliseconds. */
interface PullHeader {
  readonly source: string;
  readonly tokens: number;
  readonly ms: number;
  readonly computeMs: number;
}

/** @returns undefined for an answer without a pull */
function readPullHeader(text: string | undefined): PullHeader | undefined {
  const [, source, tokens, ms, computeMs] = /^(.+);tokens=(\d+);ms=(\d+);compute-ms=(\d+)$/.exec(text ?? "") ?? [];
  if (source === undefined) return undefined;
  return { source, tokens: Number(tokens), ms: Number(ms), computeMs: Number(computeMs) };
}

const kvSource = "x-espalier-kv-source";
const documentWords = 7_000;
/** Questions are long, so that an engine that gets several of them is busy. */
const questionWords = 1_200;
const readers = 8;
/** Engines announce their CPU memory after the answer. */
const announcedMs = 500;

/**
 * A conversation about a long document, and others about the same document at once: too many for the engine that has it, so
 * that another one fetches it from there.
 *
 * @returns a line for each question; undefined if the signal came first
 */
export async function tellOfPulls({ urls, model, signal }: PullStory): Promise<string | undefined> {
  const client = createLoadClient(systemClock);
  const random = createSeededRandom(11);
  const words = (count: number): string =>
    Array.from({ length: count }, () => vocabulary[random.integer(vocabulary.length)]).join(" ");
  const ask = (messages: readonly ChatMessage[], router: number): Promise<Answer> =>
    client.send(
      {
        url: urls[router % urls.length]!,
        path: "/v1/chat/completions",
        body: JSON.stringify({
          ...{ model, stream: true, stream_options: { include_usage: true }, max_tokens: 16 },
          messages,
        }),
        keepText: true,
        keepHeaders: [kvSource],
      },
      signal,
    );
  try {
    const about: ChatMessage = { role: "user", content: words(documentWords) };
    const first = await ask([about], 0);
    // A router that has not seen the document may take longer over its tokens than a decision waits.
    for (let router = 1; router < urls.length; router++) await ask([about], router);
    await wait(announcedMs, signal);
    if (signal.aborted) return undefined;
    const turns = Array.from({ length: readers }, () => [
      about,
      { role: "assistant", content: first.text } as const,
      { role: "user", content: words(questionWords) } as const,
    ]);
    const answers = await Promise.all(turns.map((messages, at) => ask(messages, at + 1)));
    return signal.aborted ? undefined : describeStory([first, ...answers], urls.length);
  } finally {
    client.close();
  }
}

const vocabulary = (
  "the wall the tree a branch and its fruit in early spring when frost is gone tie every young shoot to wires " +
  "prune what grows away from them feed roots with compost water deeply once each week until harvest"
).split(" ");

function describeStory(answers: readonly Answer[], routers: number): string {
  const rows = answers.map((answer, at) => ({ answer, at, pull: readPullHeader(answer.headers?.[kvSource]) }));
  const table = layOutTable(rows, [
    { header: "turn", value: ({ at }) => (at === 0 ? "the document" : `question ${at}`) },
    { header: "router", value: ({ at }) => `router-${(at % routers) + 1}` },
    { header: "engine", value: ({ answer }) => answer.engine },
    { header: "tokens", value: ({ answer }) => answer.promptTokens },
    { header: "cached", value: ({ answer }) => answer.cachedTokens },
    { header: "first token (ms)", value: ({ answer }) => Math.round(answer.firstTokenMs - answer.startMs) },
    { header: "", value: ({ answer, pull }) => answer.error ?? (pull ? describePull(pull) : "") },
  ]);
  const moved = rows.filter(({ pull }) => pull).length;
  const point =
    moved > 0
      ? "The engine that cached the document was busy; another engine fetched the blocks instead of recomputing them."
      : "The engine that cached the document had capacity for all turns; no blocks moved.";
  return `${table}\n${point}\n`;
}

function describePull({ source, tokens, ms, computeMs }: PullHeader): string {
  return `fetched ${groupDigits(tokens)} tokens from ${source}: ${ms} ms beside ${computeMs} to compute`;
}
