import { EspalierError } from "@espalier/common";
import type { SourceObserver } from "./engine-source.ts";

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
