/** What a request says to have its engine fetch blocks from another one. */
import { createSeededRandom, type KvPullSpec } from "@espalier/core";
import { expect, test } from "vitest";
import { pullProtocols } from "../../src/disaggregation/index.ts";

const edits = (protocol: KvPullSpec["protocol"], url: string, pull: Partial<KvPullSpec> = {}, rank = 0) =>
  pullProtocols[protocol].edits(
    { url, pull: { protocol, host: undefined, port: undefined, ...pull }, rank },
    createSeededRandom(1),
  );

test.each([
  ["http://10.0.0.7:8000", {}, 0, "10.0.0.7", 5_710],
  ["http://10.0.0.7:8000", { host: "kv-7", port: 6_000 }, 3, "kv-7", 6_003],
  ["http://[fd00::7]:8000", {}, 0, "fd00::7", 5_710],
] as const)("vLLM's P2P tier: %s %j", (url, pull, rank, host, port) => {
  const { set, headers } = edits("p2p", url, pull, rank);
  expect(headers).toEqual([]);
  expect(JSON.parse(set.kv_transfer_params!)).toEqual({
    remote_kv_source: {
      kv_request_id: expect.stringMatching(/^pull-[0-9a-f]{32}$/),
      remote_host: host,
      remote_port: port,
    },
  });
});

test.each([
  ["http://10.0.0.7:8000", {}, "10.0.0.7:8000"],
  ["https://engine-7", {}, "engine-7:443"],
  ["http://[fd00::7]:8000", {}, "[fd00::7]:8000"],
  ["http://engine-7:8000", { host: "fd00::8" }, "[fd00::8]:8000"],
] as const)("llm-d's sidecar: %s %j", (url, pull, at) => {
  expect(edits("llm-d-sidecar", url, pull)).toEqual({ set: {}, headers: ["x-kv-cache-source-host-port", at] });
});
