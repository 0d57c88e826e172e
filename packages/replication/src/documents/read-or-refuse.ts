import { EspalierError } from "@espalier/common";

/** What others send and cannot be taken. */
export function refused(message: string, cause?: unknown): EspalierError {
  return new EspalierError("mesh_update_refused", message, { cause });
}

/** A document would hold more than this replica keeps of one, which is no fault of whoever sent it. */
export class DocumentFullError extends EspalierError {
  constructor(message: string) {
    super("mesh_update_refused", message);
  }
}

/**
 * @param failed called before it throws
 * @throws EspalierError `mesh_update_refused` when `read` throws anything
 */
export function readOrRefuse<Read>(name: string, read: () => Read, failed = (): void => {}): Read {
  try {
    return read();
  } catch (cause) {
    failed();
    throw refused(`${name}: ${cause instanceof Error ? cause.message : "unreadable"}`, cause);
  }
}
