import { dialectNames, type KvEventOptions } from "./events/kv-event-options.ts";
import { engineRoles, type TransferOptions, transferProtocols } from "./transfer/transfer-options.ts";

/** The flags about prefill and decode on different engines. */
export const transferFlags = {
  role: { type: "string" },
  "kv-transfer": { type: "string" },
  "kv-transfer-port": { type: "string" },
  "kv-transfer-bytes-per-token": { type: "string" },
  "kv-transfer-bytes-per-second": { type: "string" },
  "kv-transfer-setup-ms": { type: "string" },
  "kv-transfer-timeout-ms": { type: "string" },
  "kv-transfer-failure": { type: "string" },
  "kv-storage": { type: "string" },
  "kv-pool-events": { type: "string" },
  "kv-pool-events-port": { type: "string" },
} as const;

const poolPortFlag = "kv-pool-events-port";

type TransferFlags = { readonly [Flag in keyof typeof transferFlags]?: string | undefined };

/**
 * What the flags ask for.
 *
 * @param numberOf reads the number in a flag
 * @throws RangeError naming the flag that makes no sense
 */
export function transferOptionsOf(
  values: TransferFlags,
  numberOf: (value: string | undefined, name: string) => number | undefined,
): TransferOptions | undefined {
  const { "kv-transfer": name, "kv-transfer-failure": failure, role: roleName } = values;
  if (name === undefined) {
    const stray = Object.keys(transferFlags).find((flag) => values[flag as keyof TransferFlags] !== undefined);
    if (stray !== undefined) throw new RangeError(`--${stray} needs --kv-transfer`);
    return undefined;
  }
  const protocol = transferProtocols.find((known) => known === name);
  if (!protocol) throw new RangeError(`--kv-transfer is one of ${transferProtocols.join(", ")}, not "${name}"`);
  const role = engineRoles.find((known) => known === roleName);
  if (roleName !== undefined && !role) throw new RangeError(`--role is one of ${engineRoles.join(", ")}`);
  if (failure !== undefined && failure !== "fail" && failure !== "recompute") {
    throw new RangeError(`--kv-transfer-failure is fail or recompute, not "${failure}"`);
  }
  const { "kv-pool-events": poolDialect, "kv-pool-events-port": poolPort } = values;
  if (poolDialect === undefined && poolPort !== undefined) {
    throw new RangeError("--kv-pool-events-port needs --kv-pool-events");
  }
  const numbers = {
    port: numberOf(values["kv-transfer-port"], "kv-transfer-port"),
    bytesPerToken: numberOf(values["kv-transfer-bytes-per-token"], "kv-transfer-bytes-per-token"),
    linkBytesPerSecond: numberOf(values["kv-transfer-bytes-per-second"], "kv-transfer-bytes-per-second"),
    setupMs: numberOf(values["kv-transfer-setup-ms"], "kv-transfer-setup-ms"),
    timeoutMs: numberOf(values["kv-transfer-timeout-ms"], "kv-transfer-timeout-ms"),
  };
  const poolEvents =
    poolDialect === undefined ? undefined : poolEventsOf(poolDialect, numberOf(poolPort, poolPortFlag));
  const storageUrl = values["kv-storage"];
  const given = Object.entries({ role, onFailure: failure, storageUrl, poolEvents, ...numbers });
  return { protocol, ...Object.fromEntries(given.filter(([, value]) => value !== undefined)) };
}

function poolEventsOf(name: string, port: number | undefined): KvEventOptions {
  const dialect = dialectNames.find((known) => known === name);
  if (!dialect) throw new RangeError(`--kv-pool-events is one of ${dialectNames.join(", ")}, not "${name}"`);
  return { dialect, ...(port === undefined ? {} : { port }) };
}
