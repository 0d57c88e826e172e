/** `connect`: the engine listens and the reader dials. `bind`: the reader listens and publishers dial. */
export type SubscriberMode = "connect" | "bind";

/**
 * Notifications of a subscriber. Any of these may be called before `openSubscriber` has returned. Messages may arrive a little
 * before `onUp`, because the socket and its monitor are two queues.
 */
export interface SubscriberObserver {
  /** One message, as its frames. They are the receiver's to keep. */
  onMessage(frames: readonly Uint8Array[]): void;
  /** Whether messages have come that were not passed on yet. Called on changes; at first there are none. */
  onBacklog(hasBacklog: boolean): void;
  /** A publisher is connected. Called again whenever one connects (again). */
  onUp(): void;
  /** A connection was lost, and with it maybe messages. The socket goes on trying by itself. */
  onDown(): void;
  /** The endpoint can never be used: it is malformed, or its port is taken. */
  onFailed(error: unknown): void;
}

export interface SubscriberOptions {
  readonly endpoint: string;
  readonly mode: SubscriberMode;
  /** Only messages whose first frame begins with this text; everything when it is empty. */
  readonly topic: string;
  readonly observer: SubscriberObserver;
}

export interface ReplayOptions {
  readonly endpoint: string;
  /** The first sequence number asked for. */
  readonly start: number;
  /** One frame list per answer, as a DEALER sees it. */
  readonly onFrames: (frames: readonly Uint8Array[]) => void;
}

/** An open socket. After `close` it calls nothing any more. */
export interface OpenSocket {
  /** Stops reading; what was read already may still arrive. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** The sockets that a feed needs, so that it can be tested without any. */
export interface EventTransport {
  openSubscriber(options: SubscriberOptions): OpenSocket;
  /** Sends one replay request. An endpoint that cannot be used gives no answer. */
  openReplay(options: ReplayOptions): OpenSocket;
}
