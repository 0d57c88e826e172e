import { isIPv4 } from "node:net";
import type { CacheFlavour } from "@espalier/engine-model";
import { type EventDialect, eventDialects } from "@espalier/kv-events";

/** How simulated engines publish their KV events. */
export interface KvEventOptions {
  /** How the events are spelled; `auto` as the newest engine of the flavour spells them. */
  readonly dialect: EventDialect | "auto";
  /** Port of the first engine's events, its replay on the next one, the other engines two ports on; 0, the default, for any free ports. */
  readonly port?: number;
  /** Whether what was published can be asked for again; true by default. */
  readonly replay?: boolean;
  /** Messages kept for replay; 10,000 by default, as in vLLM. */
  readonly bufferSteps?: number;
  /** First frame of every message; empty by default, as in vLLM. */
  readonly topic?: string;
}

/** The same with every default filled in. */
export interface ResolvedKvEvents {
  readonly dialect: EventDialect;
  readonly port: number;
  readonly replay: boolean;
  readonly bufferSteps: number;
  readonly topic: string;
  /** Address that the sockets are bound to. */
  readonly host: string;
}

/** What `dialect` may be. */
export const dialectNames: readonly (EventDialect | "auto")[] = ["auto", ...eventDialects];

/** Ports that one engine takes: events and replay. */
export const portsPerEngine = 2;

const defaultBufferSteps = 10_000;
const maxBufferSteps = 1_000_000;

interface EngineFacts {
  readonly flavour: CacheFlavour;
  readonly engines: number;
  readonly host: string;
  /** What the flag is called that asks for them; `kv-events` by default. */
  readonly flag?: string;
}

/** @throws RangeError naming the option that makes no sense */
export function resolveKvEvents(options: KvEventOptions, facts: EngineFacts): ResolvedKvEvents {
  const { flavour, engines, host, flag = "kv-events" } = facts;
  const { dialect, port = 0, replay = true, bufferSteps = defaultBufferSteps, topic = "" } = options;
  check(dialectNames.includes(dialect), `${flag} must be one of ${dialectNames.join(", ")}`);
  check(isWhole(port, 0, 65_535), `${flag}-port must be a whole number from 0 to 65535`);
  check(port === 0 || port + portsPerEngine * engines <= 65_536, `the ports of ${flag} must not pass 65535`);
  check(
    isWhole(bufferSteps, 1, maxBufferSteps),
    `${flag}-buffer must be a whole number from 1 to ${maxBufferSteps.toLocaleString("en")}`,
  );
  const address = host === "localhost" ? "127.0.0.1" : host;
  check(isIPv4(address), `${flag} need a host that is an IPv4 address`);
  const ownDialect = flavour === "sglang" ? "sglang-0.5.23" : "vllm-0.32";
  return { dialect: dialect === "auto" ? ownDialect : dialect, port, replay, bufferSteps, topic, host: address };
}

const isWhole = (value: number, min: number, max: number): boolean =>
  Number.isInteger(value) && value >= min && value <= max;

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
