import type { Logger } from "@espalier/core";
import { Router } from "zeromq";
import { type NumberedMessage, readReplayRequest, replayEndFrames, replayFrames } from "../codec/replay-frames.ts";
import { zmqContext } from "../zmq-context.ts";

/** The latest published messages, oldest first. A full buffer drops the oldest, as engines do. */
export type BatchBuffer = ReturnType<typeof createBatchBuffer>;

/** @param capacity most messages kept */
export function createBatchBuffer(capacity: number) {
  let batches: NumberedMessage[] = [];
  let start = 0;
  return {
    /** The messages from `sequence` on, or from the oldest one kept. Add sequences in ascending order. */
    from(sequence: number): readonly NumberedMessage[] {
      const first = batches.findIndex((batch, index) => index >= start && batch.sequence >= sequence);
      return first < 0 ? [] : batches.slice(first);
    },
    add(batch: NumberedMessage): void {
      batches.push(batch);
      if (batches.length - start > capacity) start += 1;
      // Moving messages only when half are gone costs amortised constant time per batch.
      if (start * 2 > batches.length) {
        batches = batches.slice(start);
        start = 0;
      }
    },
    clear(): void {
      batches = [];
      start = 0;
    },
  };
}

interface ReplayResponderOptions {
  /** `tcp://host:port`; port 0 selects a free one. */
  readonly endpoint: string;
  /** Repeated in every answer; undefined for engines that do not. */
  readonly topic: Uint8Array | undefined;
  readonly buffer: BatchBuffer;
  readonly highWaterMark: number;
  readonly logger: Logger;
}

export interface ReplayResponder {
  /** The bound endpoint. */
  readonly endpoint: string;
  /** Requests answered so far. */
  readonly answered: number;
  close(): Promise<void>;
}

/**
 * Answers requests for published messages one at a time, like an engine's replay socket. A slow client loses answers
 * without notice, including the end marker: a ROUTER socket drops them when its queue for the client is full.
 *
 * @throws Error when the endpoint cannot be bound
 */
export async function startReplayResponder(options: ReplayResponderOptions): Promise<ReplayResponder> {
  const { buffer, topic, logger, highWaterMark } = options;
  const socket = new Router({ context: zmqContext, linger: 0, sendHighWaterMark: highWaterMark });
  try {
    await socket.bind(options.endpoint);
  } catch (error) {
    socket.close();
    throw error;
  }
  let answered = 0;
  const answer = async (frames: readonly Uint8Array[]): Promise<void> => {
    const request = readReplayRequest(frames);
    if (!request) return;
    for (const batch of buffer.from(request.start)) await socket.send(replayFrames(request.client, topic, batch));
    await socket.send(replayEndFrames(request.client, topic !== undefined));
    answered += 1;
  };
  const serve = async (): Promise<void> => {
    try {
      for await (const frames of socket) await answer(frames);
    } catch (error) {
      if (!socket.closed) logger.error("KV event replay socket failed", { error });
    }
  };
  const serving = serve();
  const endpoint = socket.lastEndpoint ?? options.endpoint;
  return {
    endpoint,
    get answered() {
      return answered;
    },
    async close() {
      socket.close();
      await serving;
    },
  };
}
