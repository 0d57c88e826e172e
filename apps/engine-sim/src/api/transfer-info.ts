import type { EngineContext } from "../http/engine-context.ts";
import type { TransferProtocol } from "../transfer/transfer-options.ts";
import type { JsonObject } from "./body-fields.ts";

/** Names of vLLM's connectors. The other two are no engines of vLLM. */
const connectors: Readonly<Partial<Record<TransferProtocol, string>>> = {
  nixl: "NixlConnector",
  mooncake: "MooncakeConnector",
  "shared-storage": "ExampleConnector",
  "p2p-nccl": "P2pNcclConnector",
};

const kvRoles = { prefill: "kv_producer", decode: "kv_consumer", both: "kv_both" } as const;

/** What vLLM tells of its connector. */
export function vllmTransferFields({ transfers }: EngineContext): JsonObject {
  const connector = transfers && connectors[transfers.transfer.protocol];
  if (!transfers || connector === undefined) return {};
  const { role, onFailure } = transfers.transfer;
  return {
    kv_transfer_config: {
      kv_connector: connector,
      kv_role: kvRoles[role],
      kv_port: transfers.port,
      kv_load_failure_policy: onFailure,
    },
  };
}

/** What SGLang tells of its role. */
export function sglangTransferFields({ transfers }: EngineContext): JsonObject {
  if (transfers?.transfer.protocol !== "sglang-bootstrap") return {};
  const { role } = transfers.transfer;
  return { disaggregation_mode: role === "both" ? "null" : role, disaggregation_bootstrap_port: transfers.port };
}
