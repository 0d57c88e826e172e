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
