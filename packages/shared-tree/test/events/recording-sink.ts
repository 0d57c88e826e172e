import type { FeedSink } from "../../src/events/feed-state.ts";

/** Keeps what a feed tells. */
export interface RecordingSink extends FeedSink {
  /** `batch NUMBER`, `epoch REASON`, `STATE REASON`, in order. */
  readonly log: string[];
  /** The numbers of the batches of the latest epoch. */
  readonly sequences: number[];
  /** The first hash of each of those batches. */
  readonly hashes: number[];
  /** `STATE REASON` in order. */
  readonly states: readonly string[];
  readonly epochs: readonly string[];
  /** Makes the batch with this number throw. */
  throwAt: number | undefined;
  /** Called with each batch. */
  onBatch: (sequence: number) => void;
}

export function createRecordingSink(): RecordingSink {
  const log: string[] = [];
  const states: string[] = [];
  const epochs: string[] = [];
  const sink: RecordingSink = {
    log,
    sequences: [],
    hashes: [],
    states,
    epochs,
    throwAt: undefined,
    onBatch: () => {},
    batch(batch, sequence) {
      if (sequence === sink.throwAt) throw new Error("the sink fails");
      sink.onBatch(sequence);
      log.push(`batch ${sequence}`);
      sink.sequences.push(sequence);
      sink.hashes.push(batch.hashStart[1]! > 0 ? batch.hashes[0]! : -1);
    },
    newEpoch(reason) {
      log.push(`epoch ${reason}`);
      epochs.push(reason);
      sink.sequences.length = 0;
      sink.hashes.length = 0;
    },
    state(state, reason) {
      log.push(`${state} ${reason}`);
      states.push(`${state} ${reason}`);
    },
  };
  return sink;
}
