import type { Startable } from "./startable.ts";

/** One connection that carries binary frames in order, or breaks. */
export interface Connection {
  send(frame: Uint8Array): void;
  /** Bytes that were sent and have not left this process. */
  readonly bufferedBytes: number;
  /** Ends it in good order. */
  close(code: number, reason: string): void;
  /** Ends it at once. */
  terminate(): void;
  /** The other end has proved who it is. Before that, it may send only few bytes in all, or the connection ends. */
  trust(): void;
  /** `host:port` of the other end, for logs. */
  readonly remote: string;
}

/**
 * Takes what a connection brings. It is never called from inside a call to the connection or the transport. `closed`
 * comes once for every connection, whoever ended it, and nothing after it.
 */
export interface ConnectionObserver {
  /** The bytes are a view into a larger buffer: copy what is kept. */
  frame(frame: Uint8Array): void;
  /** @param reason what the other end gave, or what broke; no frame comes after it */
  closed(reason: ConnectionEnd): void;
  /** Buffered bytes went below the mark of the transport. */
  drained(): void;
}

export interface ConnectionEnd {
  /** `closed`: in good order by either end, `reset`: the other end is gone, `refused`: nothing listened. */
  readonly kind: "closed" | "reset" | "refused" | "timeout" | "error";
  /** A dial that failed was accepted, and reset before any answer. */
  readonly isReset?: boolean;
  readonly code: number;
  readonly reason: string;
}

/** Makes connections. Sockets in production, memory in tests and in the simulator. */
export interface Transport extends Startable {
  /** Where it listens, `host:port`; empty before the start. */
  readonly address: string;
  /** @param accept called for every connection from outside; it returns who takes its frames */
  onConnection(accept: (connection: Connection) => ConnectionObserver): void;
  /** Begins to dial. The observer hears `closed` when it fails; `opened` when it works. */
  dial(address: string, observer: ConnectionObserver & { opened(connection: Connection): void }): void;
}

/**
 * A connection with this many bytes waiting should be given no more. Once it has had as many, its observer is told
 * `drained` when fewer wait.
 */
export const drainMarkBytes = 64 * 1_024;

/** Bytes that may come from the other end before `trust` is called. */
export const maxUntrustedBytes = 16 * 1_024;
