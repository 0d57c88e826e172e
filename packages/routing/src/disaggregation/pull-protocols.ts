import type { Endpoint } from "@espalier/api";
import type { KvPullProtocol, KvPullSpec, Random } from "@espalier/core";
import { plainHost } from "@espalier/core";
import { hostOf, type LegEdits, portOf, randomId } from "./transfer-protocols.ts";

/** The engine whose CPU memory another one pulls from. */
interface PullSourceEngine {
  readonly url: string;
  readonly pull: KvPullSpec;
  /** Data-parallel rank that has the blocks. */
  readonly rank: number;
}

/** How a request tells its engine to pull KV blocks of the prompt from another engine. Pure. */
export interface PullProtocol {
  readonly name: KvPullProtocol;
  readonly endpoints: ReadonlySet<Endpoint["id"]>;
  edits(source: PullSourceEngine, random: Random): LegEdits;
}

/** Of vLLM's `VLLM_P2P_SIDE_CHANNEL_PORT`. */
const sideChannelPort = 5_710;

/** vLLM's P2P tier (0.32, `kv_offload/tiering/p2p`): the source's side channel, and an id that no other request has. */
const p2p: PullProtocol = {
  name: "p2p",
  endpoints: new Set(["chat", "completions"]),
  edits({ url, pull, rank }, random) {
    const source = {
      kv_request_id: `pull-${randomId(random)}`,
      remote_host: plainHost(hostOf(url, pull.host)),
      remote_port: (pull.port ?? sideChannelPort) + rank,
    };
    return { set: { kv_transfer_params: JSON.stringify({ remote_kv_source: source }) }, headers: [] };
  },
};

/** Engines behind llm-d's sidecar (`pkg/sidecar/proxy`), which makes the fields of the P2P tier from a header. */
const llmdSidecar: PullProtocol = {
  name: "llm-d-sidecar",
  endpoints: new Set(["chat", "completions"]),
  edits({ url, pull }) {
    const at = `${hostOf(url, pull.host)}:${portOf(url)}`;
    return { set: {}, headers: ["x-kv-cache-source-host-port", at] };
  },
};

/** Every protocol, by its name in the configuration. */
export const pullProtocols: Readonly<Record<KvPullProtocol, PullProtocol>> = { p2p, "llm-d-sidecar": llmdSidecar };
