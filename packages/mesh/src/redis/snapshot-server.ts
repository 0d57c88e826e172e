import type { Logger, Scheduler } from "@espalier/common";
import { type Origin, originKey, type SnapshotSource } from "@espalier/replication";
import type { ControlMessage } from "./control-message.ts";
import { pause } from "./pause.ts";
import type { CountIncident } from "./redis-incidents.ts";
import type { RedisKeys } from "./redis-keys.ts";
import type { RedisLimits } from "./redis-limits.ts";
import type { RedisSession } from "./redis-session.ts";

/** First byte of what lies in the list of a snapshot. */
export const snapshotMarks = { frame: 0, end: 1 } as const;

/** Between two looks whether what was written has been fetched. */
const backlogPollMs = 10;

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
    for (let waitedMs = 0; waitedMs < limits.snapshotTtlMs; waitedMs += backlogPollMs) {
      const backlog = await session.run("LLEN", key);
      if (typeof backlog !== "number" || backlog < limits.maxSnapshotBacklog) return true;
      await pause(scheduler, backlogPollMs);
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
