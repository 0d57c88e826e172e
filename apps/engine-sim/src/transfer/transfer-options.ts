import { type CacheFlavour, enginePresets, type PresetName } from "@espalier/engine-model";
import { type KvEventOptions, type ResolvedKvEvents, resolveKvEvents } from "../events/kv-event-options.ts";

/** How KV blocks go from one engine to another. */
export const transferProtocols = [
  "nixl",
  "sglang-bootstrap",
  "mooncake",
  "shared-storage",
  "trtllm",
  "p2p-nccl",
] as const;

export type TransferProtocol = (typeof transferProtocols)[number];

/** What an engine is for, where prefill and decode are apart. */
export const engineRoles = ["prefill", "decode", "both"] as const;

export type EngineRole = (typeof engineRoles)[number];

/** What becomes of a request whose blocks do not come: vLLM's `kv_load_failure_policy`. */
export type LoadFailurePolicy = "fail" | "recompute";

/** How the engines of a process hand KV blocks to others. */
export interface TransferOptions {
  readonly protocol: TransferProtocol;
  /** `both` by default. SGLang and P2P-NCCL know no such engines. */
  readonly role?: EngineRole;
  /** Side channel of the first engine, the others count up from it; 0, the default, for any free ports. */
  readonly port?: number;
  /** Bytes of KV per token; those of the preset by default. */
  readonly bytesPerToken?: number;
  /** Of the link between engines; 12.5e9 by default, 100 Gbit/s. */
  readonly linkBytesPerSecond?: number;
  /** What every transfer takes before the first byte, in milliseconds of engine time; 5 by default. */
  readonly setupMs?: number;
  /** How long blocks wait to be fetched, and engines for each other, in real milliseconds; 480,000 by default. */
  readonly timeoutMs?: number;
  /** Of the protocols of vLLM; `fail` by default, as there. */
  readonly onFailure?: LoadFailurePolicy;
  /** Side channel of an engine that keeps the blocks of `shared-storage`; by default the first one of this process. */
  readonly storageUrl?: string;
  /**
   * Has the first engine of the process publish what `shared-storage` keeps there, as a pool outside the engines does:
   * blocks with their tokens, of the medium EXTERNAL. None by default.
   */
  readonly poolEvents?: KvEventOptions;
}

/** The same with every default filled in. */
export interface ResolvedTransfer {
  readonly protocol: TransferProtocol;
  readonly role: EngineRole;
  readonly port: number;
  readonly setupMs: number;
  /** What a token takes on its way, in milliseconds of engine time. */
  readonly msPerToken: number;
  readonly timeoutMs: number;
  readonly onFailure: LoadFailurePolicy;
  readonly storageUrl: string | undefined;
  readonly poolEvents: ResolvedKvEvents | undefined;
}

/** As long as vLLM keeps blocks that nobody fetches (`VLLM_NIXL_ABORT_REQUEST_TIMEOUT`). */
const defaultTimeoutMs = 480_000;
const maxTimeoutMs = 86_400_000;

interface TransferDefaults {
  readonly engines: number;
  readonly preset: PresetName;
  readonly flavour: CacheFlavour;
  readonly host: string;
}

/** @throws RangeError naming the option that makes no sense */
export function resolveTransfer(options: TransferOptions, defaults: TransferDefaults): ResolvedTransfer {
  const { engines, preset, flavour, host } = defaults;
  const { protocol, role = "both", port = 0, setupMs = 5, timeoutMs = defaultTimeoutMs, onFailure = "fail" } = options;
  const { bytesPerToken = enginePresets[preset].kvBytesPerToken, linkBytesPerSecond = 12.5e9, storageUrl } = options;
  const { poolEvents } = options;
  check(transferProtocols.includes(protocol), `kv-transfer must be one of ${transferProtocols.join(", ")}`);
  check(engineRoles.includes(role), `role must be one of ${engineRoles.join(", ")}`);
  check(protocol !== "p2p-nccl" || role !== "both", "p2p-nccl needs the role prefill or decode");
  check(
    Number.isInteger(port) && port >= 0 && port <= 65_535,
    "kv-transfer-port must be a whole number from 0 to 65535",
  );
  check(port === 0 || port + engines <= 65_536, "the ports of kv-transfer must not pass 65535");
  check(isPositive(bytesPerToken), "kv-transfer-bytes-per-token must be a number above 0");
  check(isPositive(linkBytesPerSecond), "kv-transfer-bytes-per-second must be a number above 0");
  check(Number.isFinite(setupMs) && setupMs >= 0, "kv-transfer-setup-ms must be a number from 0");
  check(
    Number.isInteger(timeoutMs) && timeoutMs >= 1 && timeoutMs <= maxTimeoutMs,
    `kv-transfer-timeout-ms must be a whole number from 1 to ${maxTimeoutMs}`,
  );
  check(onFailure === "fail" || onFailure === "recompute", "kv-transfer-failure must be fail or recompute");
  check(storageUrl === undefined || protocol === "shared-storage", "kv-storage needs kv-transfer shared-storage");
  check(storageUrl === undefined || URL.canParse(storageUrl), "kv-storage must be a URL");
  check(poolEvents === undefined || protocol === "shared-storage", "kv-pool-events needs kv-transfer shared-storage");
  check(poolEvents === undefined || storageUrl === undefined, "kv-pool-events go with the blocks, not with kv-storage");
  const resolvedEvents =
    poolEvents && resolveKvEvents(poolEvents, { flavour, engines: 1, host, flag: "kv-pool-events" });
  const msPerToken = (bytesPerToken / linkBytesPerSecond) * 1_000;
  return {
    ...{ protocol, role, port, setupMs, msPerToken, timeoutMs, onFailure, storageUrl },
    poolEvents: resolvedEvents,
  };
}

const isPositive = (value: number): boolean => Number.isFinite(value) && value > 0;

function check(holds: boolean, message: string): void {
  if (!holds) throw new RangeError(message);
}
