import type { Clock, Logger, Random, Scheduler } from "@espalier/common";
import {
  type Origin,
  originKey,
  type ReplicaPorts,
  type SnapshotRequest,
  type SnapshotSink,
  type SnapshotSource,
} from "@espalier/replication";
import type { ControlMessage } from "./message-channels.ts";
import type { CountIncident, RedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import { listOf, pause, type RedisReply, type RedisSession } from "./redis-session.ts";

/** First byte of what lies in the list of a snapshot. */
const snapshotMarks = { frame: 0, end: 1 } as const;

/** Between two looks at the list: whether frames have come, or been fetched. */
const pollMs = 10;
/** Frames that are fetched at once. */
const fetchCount = 8;

export interface SnapshotClientOptions {
  readonly snapshots: Pick<ReplicaPorts["snapshots"], "beginImport" | "unavailable">;
  readonly origin: () => Origin;
  /** The session that stands now. */
  readonly session: () => RedisSession | undefined;
  /** Whether anybody is there who has state. */
  readonly hasPeers: () => boolean;
  readonly publish: (question: SnapshotQuestion) => void;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  readonly count: CountIncident;
}

interface Waiting {
  request: SnapshotRequest;
  readonly done: (() => void)[];
}

/** Fetches snapshots, one after the other. */
export class SnapshotClient {
  readonly #options: SnapshotClientOptions;
  readonly #waiting: Waiting[] = [];
  #isBusy = false;
  #isStopped = false;
  #asked = 0;

  constructor(options: SnapshotClientOptions) {
    this.#options = options;
  }

  /** @returns once the snapshot is there, or nobody had it, or this is stopped */
  ask(request: SnapshotRequest): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    return new Promise((resolve) => {
      const last = this.#waiting.at(-1);
      if (this.#waiting.length >= this.#options.limits.maxSnapshotRequests && last) {
        last.request = mergeRequests(last.request, request);
        last.done.push(resolve);
      } else {
        this.#waiting.push({ request, done: [resolve] });
      }
      void this.#work();
    });
  }

  stop(): void {
    this.#isStopped = true;
    for (const { done } of this.#waiting.splice(0)) for (const settle of done) settle();
  }

  async #work(): Promise<void> {
    if (this.#isBusy) return;
    this.#isBusy = true;
    for (let next = this.#waiting.shift(); next && !this.#isStopped; next = this.#waiting.shift()) {
      await this.#serve(next);
    }
    this.#isBusy = false;
  }

  async #serve({ request, done }: Waiting): Promise<void> {
    const { snapshots, limits, hasPeers } = this.#options;
    let isThere = false;
    for (let round = 0; round < limits.snapshotAttempts && !isThere && !this.#isStopped; round++) {
      isThere = await this.#attempt(request);
      if (!isThere && !hasPeers()) break;
    }
    if (!isThere && !this.#isStopped) snapshots.unavailable(request);
    for (const settle of done) settle();
  }

  async #attempt(request: SnapshotRequest): Promise<boolean> {
    const { snapshots, limits, scheduler, random, keys, logger, count, hasPeers, publish } = this.#options;
    const session = this.#options.session();
    if (!session || session.isEnded) {
      await pause(scheduler, limits.snapshotTimeoutMs);
      return false;
    }
    if (!hasPeers()) return false;
    const from = this.#options.origin();
    const id = `${from.epoch}-${++this.#asked}-${random.integer(0x1_0000_0000).toString(36)}`;
    const isListed = request.targets !== undefined && request.targets.length <= limits.maxSnapshotTargets;
    const targets = isListed ? (request.targets ?? null) : null;
    publish({ kind: "snapshot", from, id, targets, holder: request.from ?? null });
    const sink = snapshots.beginImport();
    let isWhole = false;
    try {
      isWhole = await this.#fetchInto(session, keys.snapshot(id), sink);
    } catch (error) {
      count("snapshot-failed");
      logger.warn("a snapshot could not be fetched", { error: error instanceof Error ? error.message : "unknown" });
    }
    if (isWhole) sink.end();
    else sink.abort();
    return isWhole;
  }

  async #fetchInto(session: RedisSession, key: string, sink: SnapshotSink): Promise<boolean> {
    const { clock, scheduler, limits } = this.#options;
    let lastMs = clock.nowMs();
    let frames = 0;
    while (!this.#isStopped && clock.nowMs() - lastMs < limits.snapshotTimeoutMs) {
      const replies = listOf(await session.run("LPOP", key, String(fetchCount)));
      for (const reply of replies) {
        if (++frames > limits.maxSnapshotFrames) throw new RangeError(`more than ${limits.maxSnapshotFrames} frames`);
        const bytes = frameOf(reply, limits.maxEntryBytes);
        if (bytes[0] === snapshotMarks.end) return true;
        sink.frame(bytes.subarray(1));
      }
      if (replies.length > 0) lastMs = clock.nowMs();
      else await pause(scheduler, pollMs);
    }
    return false;
  }
}

/** One request that brings what both ask for. */
function mergeRequests(one: SnapshotRequest, other: SnapshotRequest): SnapshotRequest {
  const isSame = one.from && other.from && originKey(one.from) === originKey(other.from);
  const targets = one.targets && other.targets ? [...new Set([...one.targets, ...other.targets])] : undefined;
  return { targets, from: isSame ? one.from : undefined };
}

function frameOf(reply: RedisReply, maxBytes: number): Buffer {
  if (!Buffer.isBuffer(reply) || reply.length === 0 || reply.length > maxBytes) {
    throw new RangeError("a frame of a snapshot is unreadable");
  }
  if (reply[0] !== snapshotMarks.frame && reply[0] !== snapshotMarks.end) {
    throw new RangeError("a frame of a snapshot of an unknown kind");
  }
  return reply;
}

export type SnapshotQuestion = ControlMessage & { readonly kind: "snapshot" };

/** Answers other routers' requests for snapshots, a few at a time. */
export interface SnapshotServer {
  /** Answers unless another router was quicker, or this one is busy with others. */
  handle(session: RedisSession, question: SnapshotQuestion): Promise<void>;
}

export interface SnapshotServerOptions {
  readonly snapshots: SnapshotSource;
  readonly origin: () => Origin;
  /** Whether this router has all that its peers have: what it lacks it cannot give. */
  readonly isReady: () => boolean;
  readonly keys: RedisKeys;
  readonly limits: RedisLimits;
  readonly scheduler: Scheduler;
  readonly logger: Logger;
  readonly count: CountIncident;
}

export function createSnapshotServer(options: SnapshotServerOptions): SnapshotServer {
  const { snapshots, origin, isReady, keys, limits, scheduler, logger, count } = options;
  let exports = 0;

  const waitForRoom = async (session: RedisSession, key: string): Promise<boolean> => {
    for (let waitedMs = 0; waitedMs < limits.snapshotTtlMs; waitedMs += pollMs) {
      const backlog = await session.run("LLEN", key);
      if (typeof backlog !== "number" || backlog < limits.maxSnapshotBacklog) return true;
      await pause(scheduler, pollMs);
    }
    return false;
  };
  const write = async (session: RedisSession, { id, targets }: SnapshotQuestion): Promise<void> => {
    const key = keys.snapshot(id);
    const put = async (mark: number, frame: Uint8Array): Promise<void> => {
      await session.run("RPUSH", key, marked(mark, frame));
      await session.run("PEXPIRE", key, String(limits.snapshotTtlMs));
    };
    for (const frame of snapshots.exportFrames(limits.pieceBytes, targets ?? undefined)) {
      if (!(await waitForRoom(session, key))) {
        await session.run("DEL", key);
        throw new RangeError("nobody fetches the snapshot");
      }
      await put(snapshotMarks.frame, frame);
    }
    await put(snapshotMarks.end, new Uint8Array(0));
  };

  return {
    async handle(session, question) {
      const isHolder = question.holder !== null && originKey(question.holder) === originKey(origin());
      if (question.holder !== null && !isHolder) await pause(scheduler, limits.snapshotTimeoutMs / 4);
      if (exports >= limits.maxSnapshotExports || !isReady() || session.isEnded) return;
      exports++;
      try {
        const lock = `${keys.snapshot(question.id)}:lock`;
        const ttl = String(limits.snapshotTtlMs);
        if ((await session.run("SET", lock, originKey(origin()), "NX", "PX", ttl)) !== "OK") return;
        await write(session, question);
      } catch (error) {
        count("snapshot-failed");
        logger.warn("a snapshot was not given", { error: error instanceof Error ? error.message : "unknown" });
      } finally {
        exports--;
      }
    },
  };
}

function marked(mark: number, frame: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(frame.length + 1);
  bytes[0] = mark;
  bytes.set(frame, 1);
  return bytes;
}
