/**
 * A connection with this many bytes waiting should be given no more. Once it has had as many, its observer is told
 * `drained` when fewer wait.
 */
export const drainMarkBytes = 64 * 1_024;

/** Bytes that may come from the other end before `trust` is called. */
export const maxUntrustedBytes = 16 * 1_024;
