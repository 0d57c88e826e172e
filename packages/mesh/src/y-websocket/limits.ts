/** Bounds of the y-websocket endpoint. */
export interface YWebsocketLimits {
  /** Readers at the same time; one more is answered 503. */
  readonly maxConnections: number;
  /** Bytes that wait for a reader; with more it is cut off, connects again and asks for what it lacks. */
  readonly maxBufferedBytes: number;
  /** Of a message from a reader. */
  readonly maxPayloadBytes: number;
  /** A document goes out in pieces of about this many bytes, each after the one before it has left. */
  readonly pieceBytes: number;
  /** A reader is told that somebody is there; the stock provider reconnects after 30 s of silence. */
  readonly awarenessIntervalMs: number;
}

export const defaultYWebsocketLimits: YWebsocketLimits = {
  maxConnections: 256,
  maxBufferedBytes: 1_048_576,
  maxPayloadBytes: 65_536,
  pieceBytes: 131_072,
  awarenessIntervalMs: 15_000,
};
