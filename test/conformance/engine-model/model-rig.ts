import type { CapturedRequest, CapturedSession } from "@espalier/bench";
import { createEngine, type EngineParameters, type KvEvent } from "@espalier/engine-model";
import { argument, type Capture, type ContentEvent, createContentNames } from "./capture.ts";

/** The model set up as a captured engine was, with its events in content. */
export interface ModelRig {
  readonly events: ContentEvent[];
  /** Hands in a request now. Returns the name under which `cachedTokens` knows it. */
  submit(request: CapturedRequest, prompt: readonly number[], output: readonly number[]): string;
  /** Lets a step begin, and a moment pass. */
  begin(): void;
  /** Runs until nothing is left to do; drops what generates its token `dropAt`. */
  settle(dropAt?: number): void;
  cachedTokens(id: string): number;
  reset(): void;
}

export function createModelRig(capture: Capture, session: CapturedSession): ModelRig {
  const base = session.args[session.args.indexOf("--served-model-name") + 1];
  const events: ContentEvent[] = [];
  const names = createContentNames();
  const cached = new Map<string, number>();
  let timeMs = 0;
  let serial = 0;
  let dropIndex: number | undefined;
  const engine = createEngine({
    parameters: parametersOf(capture, session),
    hashSeed: 1,
    observer: {
      events: (batch) => void events.push(...batch.map((event) => toContent(event, names, capture))),
      finished: (report) => void cached.set(report.id, report.cachedTokens),
      token: (id, index, _token, at) => (index === dropIndex ? engine.abort(id, at) : undefined),
    },
  });
  return {
    events,
    submit(request, prompt, output) {
      const id = `${request.id}.${serial++}`;
      const { model, cache_salt: cacheSalt, extra_key: extraKey } = request.request ?? {};
      const adapter = extraKey ?? (model === base ? undefined : model);
      engine.submit(
        {
          id,
          promptTokens: Uint32Array.from(prompt),
          outputTokens: output.length,
          outputToken: (index) => output[index]!,
          ...(adapter === undefined ? {} : { adapter }),
          ...(cacheSalt === undefined ? {} : { cacheSalt }),
        },
        timeMs,
      );
      return id;
    },
    begin() {
      engine.advanceTo(timeMs);
      timeMs += 0.001;
    },
    settle(dropAt) {
      dropIndex = dropAt;
      for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) {
        timeMs = at;
        engine.advanceTo(at);
      }
      timeMs += 1_000;
      dropIndex = undefined;
    },
    cachedTokens: (id) => cached.get(id)!,
    reset() {
      if (!engine.resetPrefixCache(timeMs)) throw new Error("the model refused a reset that the engine did");
    },
  };
}

function toContent(event: KvEvent, names: ReturnType<typeof createContentNames>, capture: Capture): ContentEvent {
  if (event.type === "cleared") return event;
  if (event.type === "removed")
    return { type: "removed", blocks: event.hashes.map((hash) => names.known(String(hash))) };
  const extra = [event.adapter, event.cacheSalt].filter((part) => part !== undefined);
  const space = capture.engine === "vllm" ? [extra.length > 0 ? extra : null, null] : [null, event.cacheSalt ?? null];
  return names.enter({
    hashes: event.hashes.map(String),
    parent: event.parentHash,
    tokens: [...event.tokens],
    space: JSON.stringify(space),
  });
}

function parametersOf(capture: Capture, session: CapturedSession): EngineParameters {
  const sglang = capture.engine === "sglang";
  return {
    flavour: capture.engine,
    blockSize: session.block_size,
    // vLLM keeps one block of the pool for itself.
    blockCount: sglang ? session.num_blocks : session.num_blocks - 1,
    maxBatchedTokens: 2_048,
    maxRunning: argument(session, sglang ? "--max-running-requests" : "--max-num-seqs") ?? 16,
    maxModelLength: argument(session, sglang ? "--context-length" : "--max-model-len") ?? 2_048,
    stepBaseMs: 10,
    prefillMsPerToken: 0.1,
    attentionMsPerTokenPair: 0,
    decodeMsPerSequence: 0.1,
    decodeMsPerContextToken: 0,
    prefixCaching: true,
    freeOrder: capture.version < 24 && !sglang ? "by-age" : "uncached-first",
  };
}
