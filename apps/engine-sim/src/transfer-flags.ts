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
} as const;

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
  const numbers = {
    port: numberOf(values["kv-transfer-port"], "kv-transfer-port"),
    bytesPerToken: numberOf(values["kv-transfer-bytes-per-token"], "kv-transfer-bytes-per-token"),
    linkBytesPerSecond: numberOf(values["kv-transfer-bytes-per-second"], "kv-transfer-bytes-per-second"),
    setupMs: numberOf(values["kv-transfer-setup-ms"], "kv-transfer-setup-ms"),
    timeoutMs: numberOf(values["kv-transfer-timeout-ms"], "kv-transfer-timeout-ms"),
  };
  const given = Object.entries({ role, onFailure: failure, storageUrl: values["kv-storage"], ...numbers });
  return { protocol, ...Object.fromEntries(given.filter(([, value]) => value !== undefined)) };
}
