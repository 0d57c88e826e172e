import { connect } from "node:net";

/** The outcome of one check. */
export interface Check {
  /** What was checked: `engine`, `clock`, ... */
  readonly check: string;
  /** Of whom: a URL, an address, a setting; empty for this machine. */
  readonly of: string;
  readonly ok: boolean;
  readonly says: string;
  /** What to do, in one line; only where it is not ok. */
  readonly fix?: string;
}

export const tick = (check: string, of: string, says: string): Check => ({ check, of, ok: true, says });

export const cross = (check: string, of: string, says: string, fix: string): Check => ({
  ...{ check, of, ok: false, says, fix },
});

/** The message of an error, with what the system said in its cause. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} (${error.cause.message})` : error.message;
}

/** A router's clock further from this machine's is a warning. */
const maxSkewMs = 5_000;

/** Compares another machine's `Date` header, which has whole seconds, with this machine's clock. */
export function checkClock(
  of: string,
  date: string | undefined,
  askedWallMs: number,
  nowWallMs: number,
): readonly Check[] {
  const thereMs = Date.parse(date ?? "");
  if (Number.isNaN(thereMs)) return [];
  const behindMs = Math.max(0, askedWallMs - (thereMs + 1_000), thereMs - nowWallMs);
  if (behindMs <= maxSkewMs) return [tick("clock", of, "in sync with this machine")];
  const says = `${Math.round(behindMs / 1_000)} s off this machine's clock`;
  return [cross("clock", of, says, "synchronize both machines with NTP")];
}

const connectTimeoutMs = 2_000;

/** @returns why no connection can be made, or undefined */
export function tryConnection(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: connectTimeoutMs });
    const end = (reason: string | undefined): void => {
      socket.destroy();
      resolve(reason);
    };
    socket.once("connect", () => end(undefined));
    socket.once("timeout", () => end(`no answer within ${connectTimeoutMs} ms`));
    socket.once("error", (error) => end(error.message));
  });
}
