import type { KvTransferProtocol } from "@espalier/common";
import { mooncake } from "./protocols/mooncake.ts";
import { nixl } from "./protocols/nixl.ts";
import { p2pNccl } from "./protocols/p2p-nccl.ts";
import { sglang } from "./protocols/sglang.ts";
import { sharedStorage } from "./protocols/shared-storage.ts";
import { trtllm } from "./protocols/trtllm.ts";
import type { TransferProtocol } from "./transfer-protocol.ts";

/** Every protocol, by the name that the configuration has for it. */
export const transferProtocols: Readonly<Record<KvTransferProtocol, TransferProtocol>> = {
  nixl,
  sglang,
  mooncake,
  "shared-storage": sharedStorage,
  trtllm,
  "p2p-nccl": p2pNccl,
};
