import { type EngineSpec, EspalierError } from "@espalier/core";

/** Observer of a source. Its functions must not throw. */
export interface SourceObserver<Entry = EngineSpec> {
  /** The whole new list, which replaces the previous one. */
  onList(list: readonly Entry[]): void;
  /**
   * The source could not follow a change; the last list stays valid. The same failure is reported once while it lasts.
   */
  onError(error: EspalierError): void;
  /** The failures reported so far are over. */
  onRecovered(): void;
}

/** Where a list comes from. `start` and `stop` are each called at most once, in that order. */
export interface Source<Entry> {
  /** Names the source in messages. */
  readonly name: string;
  /**
   * Passes the first list to `observer` before it resolves, and later lists as they come. If a source on the network does
   * not answer within a few seconds, the first list is empty and a failure is reported.
   *
   * @throws EspalierError when there is no first list and retrying is useless; nothing is left running then
   */
  start(observer: SourceObserver<Entry>): Promise<void>;
  /** Releases timers and watchers, also during a start. The observer is not called afterwards. */
  stop(): Promise<void>;
}

/** Where engines come from. */
export type EngineSource = Source<EngineSpec>;

/** Where other routers are found, as `host:port`, with IPv6 addresses in brackets. */
export type PeerSource = Source<string>;

/**
 * Reports failures to an observer: each message once while it lasts, and once when all failures are over. A source has
 * at most one current failure per topic.
 */
export type FailureReport = ReturnType<typeof createFailureReport>;

export function createFailureReport(name: string, observer: Pick<SourceObserver<never>, "onError" | "onRecovered">) {
  const current = new Map<string, string>();
  return {
    fail(topic: string, message: string, cause?: unknown): void {
      if (current.get(topic) === message) return;
      current.set(topic, message);
      observer.onError(new EspalierError("discovery_failed", `${name}: ${message}`, { cause }));
    },
    clear(topic: string): void {
      if (current.delete(topic) && current.size === 0) observer.onRecovered();
    },
  };
}

/** A source with a fixed list of engines. */
export function createListSource(specs: readonly EngineSpec[]): EngineSource {
  return {
    name: "the configuration",
    async start(observer) {
      observer.onList(specs);
    },
    async stop() {},
  };
}
