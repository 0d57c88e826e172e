import { type EngineSpec, EspalierError } from "@espalier/common";

/** Who listens to a source. Its functions return without throwing. */
export interface SourceObserver<Entry = EngineSpec> {
  /** The whole list as it is from now on; it replaces the one before. */
  onList(list: readonly Entry[]): void;
  /**
   * The source could not follow a change; the last list given stays valid. The same failure is reported once for as long
   * as it lasts.
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
   * Gives the first list to `observer` before it resolves, and later lists as they come. A source that asks others over
   * the network begins with an empty list, and a failure, when they do not answer within a few seconds.
   *
   * @throws EspalierError when there is no first list and trying again is of no use; nothing is left running then
   */
  start(observer: SourceObserver<Entry>): Promise<void>;
  /** Releases timers and watchers, also while it starts. The observer hears nothing afterwards. */
  stop(): Promise<void>;
}

/** Where engines come from. */
export type EngineSource = Source<EngineSpec>;

/** Where other routers are found, as `host:port`, with IPv6 addresses in brackets. */
export type PeerSource = Source<string>;

/**
 * Tells an observer of failures: each message once for as long as it lasts, and once all of them are over. A source
 * has at most one failure about each of a few things.
 */
export interface FailureReport {
  fail(about: string, message: string, cause?: unknown): void;
  clear(about: string): void;
}

export function createFailureReport(
  name: string,
  observer: Pick<SourceObserver<never>, "onError" | "onRecovered">,
): FailureReport {
  const standing = new Map<string, string>();
  return {
    fail(about, message, cause) {
      if (standing.get(about) === message) return;
      standing.set(about, message);
      observer.onError(new EspalierError("discovery_failed", `${name}: ${message}`, { cause }));
    },
    clear(about) {
      if (standing.delete(about) && standing.size === 0) observer.onRecovered();
    },
  };
}

/** A source of these engines. */
export function createListSource(specs: readonly EngineSpec[]): EngineSource {
  return {
    name: "the configuration",
    async start(observer) {
      observer.onList(specs);
    },
    async stop() {},
  };
}
