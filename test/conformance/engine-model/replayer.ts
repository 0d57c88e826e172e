import type { CapturedRequest, CapturedSession } from "@espalier/bench";
import type { Capture, CapturedMessage, ContentEvent } from "./capture.ts";
import { createModelRig, type ModelRig } from "./model-rig.ts";
import { outputOf, promptOf, type StoredEvent, UNKNOWN_TOKEN } from "./tokens.ts";

/** Runs captured requests through the model. */
export interface Replayer {
  readonly events: readonly ContentEvent[];
  /** Runs requests to their end, together. Returns the cached tokens of each. */
  run(requests: readonly CapturedRequest[], during: readonly CapturedMessage[]): number[];
  /** Runs requests that the capture does not list, known by what they stored. */
  runUnlisted(messages: readonly CapturedMessage[]): void;
  reset(): void;
  /** Runs requests whose order is not known, and compares only what they evict of what was there before them. */
  oldContentDuring(
    requests: readonly CapturedRequest[],
    during: readonly CapturedMessage[],
  ): { name: string; engine: string[][]; model: string[][] };
}

export function createReplayer(capture: Capture, session: CapturedSession): Replayer {
  const rig = createModelRig(capture, session);
  const answers = createAnswers(session.block_size);
  const runAll = (requests: readonly CapturedRequest[], during: readonly CapturedMessage[]): string[] => {
    if (requests.length > 1) return runTogether(rig, answers, requests, storedOf(during), session.block_size);
    return [runAlone(rig, answers, requests[0]!, storedOf(during), session.block_size, capture.engine === "sglang")];
  };
  return {
    events: rig.events,
    run: (requests, during) => runAll(requests, during).map((id) => rig.cachedTokens(id)),
    runUnlisted(messages) {
      const model = session.args[session.args.indexOf("--served-model-name") + 1];
      for (const event of storedOf(messages)) {
        if (event.depth > 0) continue;
        rig.submit({ id: -1, request: { model } } as unknown as CapturedRequest, event.tokens, [UNKNOWN_TOKEN]);
        rig.settle();
      }
    },
    reset: () => rig.reset(),
    oldContentDuring(requests, during) {
      const known = new Set(rig.events.flatMap((event) => (event.type === "cleared" ? [] : event.blocks)));
      const before = rig.events.length;
      runAll(requests, during);
      // One by one: what is new in a joined removal depends on who ran when.
      const old = (list: readonly ContentEvent[]): string[][] =>
        removalsOf(list).flatMap((blocks) => blocks.filter((block) => known.has(block)).map((block) => [block]));
      return {
        name: `older content during ${requests[0]!.phase}`,
        engine: old(during.flatMap((message) => message.events)),
        model: old(rig.events.slice(before)),
      };
    },
  };
}

/** Contents evicted, grouped as the events were. */
export const removalsOf = (events: readonly ContentEvent[]): string[][] =>
  events.flatMap((event) => (event.type === "removed" ? [[...event.blocks]] : []));

const storedOf = (during: readonly CapturedMessage[]): StoredEvent[] =>
  during.flatMap((message) => message.events.filter((event) => event.type === "stored"));

type Answers = (request: CapturedRequest, stored: readonly StoredEvent[], sibling: number) => readonly number[];

/** Decoding is greedy where tokens are not returned: the same prompt has the same answer. */
function createAnswers(blockSize: number): Answers {
  const earlier = new Map<string, readonly number[]>();
  return (request, stored, sibling) => {
    const key = JSON.stringify([request.request?.model, request.prompt_token_ids]);
    const shown = outputOf(request, stored, sibling, blockSize);
    const known = earlier.get(key);
    if (shown[0]! >= UNKNOWN_TOKEN && known && known.length >= shown.length) return known.slice(0, shown.length);
    earlier.set(key, shown);
    return shown;
  };
}

/** The first one is in its step when the others come. */
function runTogether(
  rig: ModelRig,
  answers: Answers,
  requests: readonly CapturedRequest[],
  stored: readonly StoredEvent[],
  blockSize: number,
): string[] {
  const ids = requests.map((request, at) => {
    const id = rig.submit(request, promptOf(request, stored, blockSize), answers(request, stored, at));
    if (at === 0) rig.begin();
    return id;
  });
  rig.settle();
  return ids;
}

/** One request with its siblings. Returns the name of the last of them. */
function runAlone(
  rig: ModelRig,
  answers: Answers,
  request: CapturedRequest,
  stored: readonly StoredEvent[],
  blockSize: number,
  promptFirst: boolean,
): string {
  const prompt = promptOf(request, stored, blockSize);
  const siblings = request.request?.n ?? 1;
  if (siblings > 1 && promptFirst) {
    // SGLang computes the prompt once before it starts the siblings.
    rig.submit(request, prompt, [UNKNOWN_TOKEN]);
    rig.settle();
  }
  let id = "";
  for (let sibling = 0; sibling < siblings; sibling++) {
    id = rig.submit(request, prompt, answers(request, stored, sibling));
  }
  rig.settle(request.aborted ? dropIndexOf(prompt, stored, blockSize) : undefined);
  return id;
}

/** The client of an aborted request went away somewhere behind the last full block. */
function dropIndexOf(prompt: readonly number[], stored: readonly StoredEvent[], blockSize: number): number {
  const ends = stored.map((event) => (event.depth + event.blocks.length) * blockSize);
  const last = Math.max(...ends, Math.floor(prompt.length / blockSize) * blockSize);
  return Math.max(0, last - prompt.length + (blockSize === 1 ? -1 : 1));
}
