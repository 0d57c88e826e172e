import {
  createEngine,
  type Engine,
  type EngineObserver,
  type EngineParameters,
  type EngineRequest,
  type KvEvent,
  type RequestReport,
} from "@espalier/engine-model";

/** Blocks of 4 tokens, and times that tell what a step did: 1 ms, 0.01 ms per prompt token, 0.1 ms per decode. */
export const smallEngine: EngineParameters = {
  flavour: "vllm",
  blockSize: 4,
  blockCount: 16,
  maxBatchedTokens: 16,
  maxRunning: 4,
  maxModelLength: 64,
  stepBaseMs: 1,
  prefillMsPerToken: 0.01,
  attentionMsPerTokenPair: 0,
  decodeMsPerSequence: 0.1,
  decodeMsPerContextToken: 0,
  prefixCaching: true,
};

export interface Harness {
  readonly engine: Engine;
  readonly reports: RequestReport[];
  readonly batches: { readonly timeMs: number; readonly events: readonly KvEvent[] }[];
  readonly tokens: { readonly id: string; readonly index: number; readonly token: number; readonly timeMs: number }[];
  /** Hands in a request at the time reached. */
  submit(id: string, prompt: readonly number[], outputTokens?: number, more?: Partial<EngineRequest>): void;
  /** Runs until nothing is left to do. */
  settle(): void;
  /** Lets time pass. */
  idle(durationMs: number): void;
  /** Runs one request alone to its end. */
  run(id: string, prompt: readonly number[], outputTokens?: number, more?: Partial<EngineRequest>): RequestReport;
  report(id: string): RequestReport;
  events(): KvEvent[];
  nowMs(): number;
}

/** Generated tokens start here, so that they never equal a token of a prompt. */
export const GENERATED = 1_000_000;

/** @param watched is told as well, after the harness has noted it */
export function createHarness(
  changes: Partial<EngineParameters> = {},
  hashSeed = 1,
  watched: Pick<EngineObserver, "imported" | "token"> = {},
): Harness {
  const reports: RequestReport[] = [];
  const batches: Harness["batches"] = [];
  const tokens: Harness["tokens"] = [];
  let reachedMs = 0;
  const engine = createEngine({
    parameters: { ...smallEngine, ...changes },
    hashSeed,
    observer: {
      token: (id, index, token, timeMs) => {
        tokens.push({ id, index, token, timeMs });
        watched.token?.(id, index, token, timeMs);
      },
      finished: (report) => void reports.push(report),
      imported: (id, count, timeMs) => watched.imported?.(id, count, timeMs),
      events: (events, timeMs) => void batches.push({ timeMs, events }),
    },
  });
  const harness: Harness = {
    engine,
    reports,
    batches,
    tokens,
    submit(id, prompt, outputTokens = 1, more = {}) {
      const outputToken = (index: number): number => GENERATED + index;
      engine.submit({ id, promptTokens: Uint32Array.from(prompt), outputTokens, outputToken, ...more }, reachedMs);
    },
    settle() {
      for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) {
        reachedMs = at;
        engine.advanceTo(at);
      }
    },
    idle(durationMs) {
      reachedMs += durationMs;
      engine.advanceTo(reachedMs);
    },
    run(id, prompt, outputTokens, more) {
      harness.submit(id, prompt, outputTokens, more);
      harness.settle();
      return harness.report(id);
    },
    report(id) {
      const found = reports.find((report) => report.id === id);
      if (!found) throw new Error(`no report of ${id}`);
      return found;
    },
    events: () => batches.flatMap((batch) => batch.events),
    nowMs: () => reachedMs,
  };
  return harness;
}

/** `length` tokens that count up from `first`. */
export const upFrom = (first: number, length: number): number[] => Array.from({ length }, (_, at) => first + at);

/** Contents of an engine's cache as its events tell them: a count for every chain of blocks. */
export interface Mirror {
  apply(events: readonly KvEvent[]): void;
  /** Copies of blocks held. */
  size(): number;
  /** Tokens of the longest known prefix among the first `limit` tokens. */
  match(tokens: readonly number[], limit: number, space?: string): number;
  /** What was wrong with the events so far. */
  readonly faults: string[];
}

export function createMirror(blockSize: number): Mirror {
  const copies = new Map<string, number>();
  const chains = new Map<bigint, string>();
  const faults: string[] = [];
  let size = 0;
  return {
    faults,
    apply(events) {
      for (const event of events) {
        if (event.type === "cleared") {
          copies.clear();
          size = 0;
        } else if (event.type === "stored") {
          let chain = `${event.adapter ?? ""}|${event.cacheSalt ?? ""}`;
          if (event.parentHash !== undefined) {
            const parent = chains.get(event.parentHash);
            if (parent === undefined) faults.push(`unknown parent ${event.parentHash}`);
            else if ((copies.get(parent) ?? 0) === 0)
              faults.push(`the parent of a stored block is not held: ${parent}`);
            chain = parent ?? chain;
          }
          if (event.tokens.length !== event.hashes.length * event.blockSize) faults.push("tokens do not fit hashes");
          for (const [at, hash] of event.hashes.entries()) {
            chain += `/${event.tokens.slice(at * blockSize, (at + 1) * blockSize).join(",")}`;
            const known = chains.get(hash);
            if (known !== undefined && known !== chain) faults.push(`one hash for ${known} and ${chain}`);
            chains.set(hash, chain);
            copies.set(chain, (copies.get(chain) ?? 0) + 1);
            size++;
          }
        } else {
          for (const hash of event.hashes) {
            const chain = chains.get(hash);
            const count = chain === undefined ? 0 : (copies.get(chain) ?? 0);
            if (count === 0) faults.push(`removed what is not held: ${hash}`);
            else copies.set(chain!, count - 1);
            size--;
          }
        }
      }
    },
    size: () => size,
    match(tokens, limit, space = "|") {
      let chain = space;
      let found = 0;
      while (found + blockSize <= limit) {
        chain += `/${tokens.slice(found, found + blockSize).join(",")}`;
        if ((copies.get(chain) ?? 0) === 0) break;
        found += blockSize;
      }
      return found;
    },
  };
}
