import { crc32 } from "node:zlib";

/** Identifies one message of an engine among all lives of all engines. */
export interface BatchMark {
  readonly sequence: number;
  /** The engine's clock when it published, in whole microseconds since the Unix epoch; -1 when it does not say. */
  readonly timestampUs: number;
  /** CRC-32 of the payload. */
  readonly checksum: number;
}

/** One run of an engine's process, named by the earliest of its messages that is known. */
export interface Life extends BatchMark {
  /** Id of the life before it, as far as the router that named it knew one. */
  readonly predecessor: string | null;
}

/** The same in every router that names a life by the same message. */
export function lifeId({ sequence, timestampUs, checksum }: BatchMark): string {
  return `${sequence}.${timestampUs}.${checksum.toString(16)}`;
}

/**
 * The life of an engine that was restarted and has published nothing yet: it ends the one before, and holds nothing. The
 * same in every router that finds it, and as late as the life before, so that the first message names a later one.
 */
export function unreadLifeAfter(before: Life): Life {
  const predecessor = lifeId(before);
  return { sequence: 0, timestampUs: before.timestampUs, checksum: crc32(predecessor), predecessor };
}

/** Whether a life was made known before its first message. */
export function isUnread({ sequence, checksum, predecessor }: Life): boolean {
  return sequence === 0 && predecessor !== null && checksum === crc32(predecessor);
}

/** How far a target is folded. */
export interface FoldPoint {
  /** Every message up to this one is applied, or was skipped. */
  readonly position: number;
  /** The latest that was applied. */
  readonly last: BatchMark | undefined;
  /** Sequence of the first message that may not be in the state as it was; `never` for a complete state. */
  readonly incompleteFrom: number;
}

/** `incompleteFrom` of a state that every message up to its position is in. */
export const never = Number.MAX_SAFE_INTEGER;

/** Where a life begins: nothing is held before its first message. */
export function startOf(life: BatchMark): FoldPoint {
  return { position: life.sequence - 1, last: undefined, incompleteFrom: never };
}
