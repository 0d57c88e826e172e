import { connect } from "node:net";
import { type Cancel, systemScheduler } from "@espalier/core";
import { flagCatalogue } from "@espalier/server";

/** `fail`: a router does not work as configured. `warn`: it works, but somebody should know. */
type Status = "pass" | "warn" | "fail";

/** What a check found out about one target. */
export interface Finding {
  /** A URL, an address, a model; empty for this machine. */
  readonly target: string;
  readonly status: Status;
  readonly message: string;
  /** The setting that decides it, as its path in the configuration and its flag; null for none. */
  readonly setting: string | null;
  /** What to do, in one line; null for what passes. */
  readonly fix: string | null;
}

export interface Check extends Finding {
  readonly check: string;
}

/** A check of the doctor: it finds out something about any number of targets. */
export interface CheckRow<Given> {
  /** Stable: people filter by it. */
  readonly name: string;
  /** Whether the configuration has anything to check; always by default. */
  readonly applies?: (given: Given) => boolean;
  readonly run: (given: Given) => readonly Finding[] | Promise<readonly Finding[]>;
}

/** A check that has not ended by then is a warning. */
const maxCheckMs = 60_000;

/** Runs all checks at once. @returns what they found, in the order of the rows */
export async function runChecks<Given>(
  rows: readonly CheckRow<Given>[],
  given: Given,
  limitMs = maxCheckMs,
): Promise<readonly Check[]> {
  const found = await Promise.all(
    rows.map(async ({ name, applies, run }) => {
      if (applies && !applies(given)) return [];
      let cancel: Cancel = () => {};
      const late = new Promise<readonly Finding[]>((resolve) => {
        const message = `not finished within ${limitMs / 1_000} s`;
        const advice = { setting: null, fix: "run doctor again, with fewer engines if the network is slow" };
        cancel = systemScheduler.after(limitMs, () => resolve([{ target: "", status: "warn", message, ...advice }]));
      });
      const findings = await Promise.race([attempt(async () => run(given)), late]);
      cancel();
      return findings.map((finding) => ({ check: name, ...finding }));
    }),
  );
  return found.flat();
}

/** What is thrown is a failure, too. */
export async function attempt(run: () => Promise<readonly Finding[]>): Promise<readonly Finding[]> {
  try {
    return await run();
  } catch (error) {
    return [fail("", reasonOf(error), { fix: "fix what the message names" })];
  }
}

export const pass = (target: string, message: string): Finding => ({
  ...{ target, status: "pass", message, setting: null, fix: null },
});

interface Advice {
  /** Path of the setting. */
  readonly setting?: string | undefined;
  readonly fix: string;
}

const advised = (status: Status, target: string, message: string, { setting, fix }: Advice): Finding => ({
  ...{ target, status, message, setting: setting === undefined ? null : settingNamed(setting), fix },
});

export const warn = (target: string, message: string, advice: Advice): Finding =>
  advised("warn", target, message, advice);

export const fail = (target: string, message: string, advice: Advice): Finding =>
  advised("fail", target, message, advice);

/** @param path `engines[1].url`, or `engines` */
function settingNamed(path: string): string {
  const plain = path.replace(/\[\d*\](\.url|\.path)?$/, "");
  const flag = flagCatalogue.find((entry) => entry.path === plain)?.flag;
  return flag === undefined ? path : `${path} (${flag})`;
}

/** The message of an error, with what the system said in the last of its causes. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  let last = error;
  while (last.cause instanceof Error) last = last.cause;
  return error.message.includes(last.message) ? error.message : `${error.message} (${last.message})`;
}

/** Reasons that are about a certificate or a handshake. */
export const tlsErrors = /certificate|self.signed|issuer|altname|TLS|SSL/i;

/** A clock further from this machine's is named. */
const maxSkewMs = 5_000;

/** When another machine answered, by its `Date` header, which has whole seconds, and by this machine's clock. */
export interface Dated {
  readonly date: string | undefined;
  readonly askedWallMs: number;
  readonly endedWallMs: number;
}

const affected = {
  engine: "event delays of this engine are estimates until events correct them",
  router: "claims of feeds and operators' changes of the later clock win",
};

/** Compares another machine's clock with this one's. Routers go by clocks; of engines they only show times. */
export function checkClock(target: string, kind: keyof typeof affected, at: Dated | undefined): readonly Finding[] {
  const thereMs = Date.parse(at?.date ?? "");
  if (!at || Number.isNaN(thereMs)) return [];
  const behindMs = Math.max(0, at.askedWallMs - (thereMs + 1_000), thereMs - at.endedWallMs);
  if (behindMs <= maxSkewMs) return [pass(target, "in sync with this machine")];
  const message = `${Math.round(behindMs / 1_000)} s off this machine's clock: ${affected[kind]}`;
  const advice = { fix: "synchronize both machines with NTP" };
  return [kind === "router" ? fail(target, message, advice) : warn(target, message, advice)];
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
