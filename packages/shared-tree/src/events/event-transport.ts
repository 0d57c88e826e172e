/** `connect`: the engine listens and the reader dials. `bind`: the reader listens and publishers dial. */
export type SubscriberMode = "connect" | "bind";

/**
 * Notifications of a subscriber. Any of them may be called before `openSubscriber` returns. Messages may arrive shortly
 * before `onUp`, because the socket and its monitor are two queues.
 */
export interface SubscriberObserver {
  /** One message, as its frames. The receiver may keep them. */
  onMessage(frames: readonly Uint8Array[]): void;
  /** Whether messages have arrived that were not passed on yet. Called on changes; initially there are none. */
  onBacklog(hasBacklog: boolean): void;
  /** A publisher is connected. Called again whenever one connects (again). */
  onUp(): void;
  /** A connection was lost, and messages perhaps with it. The socket keeps trying to reconnect. */
  onDown(): void;
  /** The endpoint cannot be used: it is malformed, or its port is taken. */
  onFailed(error: unknown): void;
}

export interface SubscriberOptions {
  readonly endpoint: string;
  readonly mode: SubscriberMode;
  /** Receives only messages whose first frame begins with this text; all messages when empty. */
  readonly topic: string;
  readonly observer: SubscriberObserver;
}

export interface ReplayOptions {
  readonly endpoint: string;
  /** The first sequence number to request. */
  readonly start: number;
  /** One frame list per answer, as a DEALER sees it. */
  readonly onFrames: (frames: readonly Uint8Array[]) => void;
}

/** An open socket. Makes no calls after `close`. */
export interface OpenSocket {
  /** Stops reading; what was already read may still arrive. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** The sockets that a feed needs, as an interface so that tests need none. Opening one may throw. */
export interface EventTransport {
  openSubscriber(options: SubscriberOptions): OpenSocket;
  /** Sends one replay request. An unusable endpoint gives no answer. */
  openReplay(options: ReplayOptions): OpenSocket;
}
