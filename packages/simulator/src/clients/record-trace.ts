import { createVirtualTime } from "@espalier/testing";
import type { BailianRow } from "@espalier/workload";
import { blockTokens, type SimRequest, type Workload } from "./workload.ts";

/** How long an answer is taken to go on for each of its tokens, where a session's next turn comes after it. */
const msPerAnswerToken = 20;
/** Traces of an open loop end with their limits; only to end one that does not. */
const maxTraceMs = 48 * 3_600_000;

/**
 * The requests of a workload as rows of a trace, in order of their times. Sessions go on as though every answer took
 * 20 ms for each of its tokens.
 *
 * @param onRow told of each row; rows are not kept
 */
export function recordTrace(workload: Workload, onRow: (row: BailianRow) => void): void {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  /** The last request of each session. */
  const parents = new Map<number, number>();
  workload.start({
    clock,
    scheduler,
    send(request, ended) {
      const { index, session, promptTokens, outputTokens } = request;
      const parent = parents.get(session);
      parents.set(session, index);
      onRow({
        ...{ chat: index, parent, arrivalMs: clock.nowMs() },
        ...{ inputTokens: promptTokens, outputTokens, blockIds: blockIdsOf(request) },
      });
      scheduler.after(outputTokens * msPerAnswerToken, () => {
        const endMs = clock.nowMs();
        ended({ firstTokenMs: endMs, endMs, cachedTokens: 0, error: undefined });
      });
    },
    finished() {},
  });
  time.runUntil(maxTraceMs);
}

/** Of the prompt's full blocks, in 52 bits of their chain hashes: readers of traces have other uses for larger numbers. */
function blockIdsOf({ promptTokens, chain }: SimRequest): readonly number[] {
  return Array.from(
    { length: Math.floor(promptTokens / blockTokens) },
    (_, block) => (chain[2 * block + 1]! & 0xf_ffff) * 2 ** 32 + chain[2 * block]!,
  );
}
