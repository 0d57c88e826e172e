import { createSeededRandom, kvTransferProtocols } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { transferProtocols } from "../../src/disaggregation/index.ts";
import { engineAt, pairOf, pairRequest, valuesOf } from "./legs.ts";

const short = { stream: false, max_tokens: 1, max_completion_tokens: 1 };
const answerOf = (fields: object, choice: object = {}): Buffer =>
  Buffer.from(JSON.stringify({ id: "a", choices: [{ index: 0, finish_reason: "length", ...choice }], ...fields }));

test("every protocol that the configuration knows is there under its name", () => {
  expect(Object.values(transferProtocols).map(({ name }) => name)).toEqual([...kvTransferProtocols]);
});

test.each(kvTransferProtocols)("%s: every edit is JSON", (name) => {
  const legs = pairOf(name, { peerId: "e" });
  for (const { set } of [legs.prefill, legs.probe ?? { set: {} }]) expect(() => valuesOf(set)).not.toThrow();
});

test.each(kvTransferProtocols.filter((name) => name !== "sglang" && name !== "llm-d-sidecar"))(
  "%s: the prefill leg is one token in one piece, whatever the client asked of its answer",
  (name) => {
    const fields = { stream: true, stream_options: { include_usage: true }, min_tokens: 5, max_tokens: 100 };
    const chat = valuesOf(pairOf(name, { fields, peerId: "e" }).prefill.set);
    expect(chat).toMatchObject({ ...short, stream_options: null, min_tokens: 0 });
    const completion = valuesOf(pairOf(name, { endpoint: "completions", fields: {}, peerId: "e" }).prefill.set);
    expect(completion).toMatchObject({ stream: false, max_tokens: 1 });
    for (const key of ["max_completion_tokens", "stream_options", "min_tokens"]) {
      expect(completion).not.toHaveProperty(key);
    }
  },
);

describe("llm-d-sidecar", () => {
  test.each([
    ["the address of its URL", engineAt("10.0.0.1", "llm-d-sidecar", {}), "10.0.0.1:8000"],
    [
      "another host and port",
      engineAt("10.0.0.1", "llm-d-sidecar", { host: "10.1.0.1", port: 9_000 }),
      "10.1.0.1:9000",
    ],
    ["an IPv6 address in brackets", engineAt("10.0.0.1", "llm-d-sidecar", { host: "fd00::1" }), "[fd00::1]:8000"],
  ])("the decode engine alone is asked, and told where the prompt is computed: %s", (_, prefill, named) => {
    const legs = pairOf("llm-d-sidecar", { prefill });
    expect(legs.prefill).toEqual({ set: {}, headers: [] });
    expect(legs.decode(undefined)).toEqual({ set: {}, headers: ["x-prefiller-host-port", named] });
  });
});

describe("nixl", () => {
  const params = {
    ...{ do_remote_prefill: true, do_remote_decode: false, remote_block_ids: [[1, 2, 3]] },
    ...{
      remote_engine_id: "e-1",
      remote_host: "10.0.0.1",
      remote_port: 5_600,
      tp_size: 2,
      remote_request_id: "cmpl-1",
    },
  };

  test("the prefill leg asks for its blocks to be kept", () => {
    expect(valuesOf(pairOf("nixl").prefill.set).kv_transfer_params).toEqual({
      ...{ do_remote_decode: true, do_remote_prefill: false, remote_engine_id: null, remote_block_ids: null },
      ...{ remote_host: null, remote_port: null },
    });
  });

  test("the decode leg says where they are, byte for byte as the prefill engine has", () => {
    const text = '{ "remote_request_id":9223372036854775807, "do_remote_prefill" : true,"x":1e400 , "é":"\\u0000" }';
    const answer = Buffer.from(`{"choices":[{"finish_reason":"length"}],"kv_transfer_params":${text}}`);
    expect(pairOf("nixl").decode(answer)).toEqual({ set: { kv_transfer_params: text }, headers: [] });
    expect(valuesOf(pairOf("nixl").decode(answerOf({ kv_transfer_params: params }))?.set)).toEqual({
      kv_transfer_params: params,
    });
  });

  test.each([
    ["no answer", undefined],
    ["an answer that was too long to read", Buffer.from("")],
    ["no JSON", Buffer.from("oops")],
    ["no parameters", answerOf({})],
    ["parameters of null", answerOf({ kv_transfer_params: null })],
    ["an answer that ended by itself", answerOf({ kv_transfer_params: params }, { finish_reason: "stop" })],
    ["no choices", Buffer.from('{"choices":[],"kv_transfer_params":{}}')],
  ])("%s: there is nothing to fetch", (_, answer) => {
    expect(pairOf("nixl").decode(answer)).toBeUndefined();
  });
});

describe("sglang", () => {
  test("both legs meet in a room of the prefill engine's bootstrap server", () => {
    const legs = pairOf("sglang");
    expect(legs.decode(undefined)).toEqual(legs.prefill);
    const { bootstrap_room: room, ...rest } = legs.prefill.set;
    expect(rest).toEqual({ bootstrap_host: '"p"', bootstrap_port: "8998" });
    expect(room).toMatch(/^\d+$/);
  });

  test("the server's address can be another one", () => {
    const prefill = engineAt("p", "sglang", { host: "fe80::1", port: 9_000 });
    expect(pairOf("sglang", { prefill }).prefill.set).toMatchObject({
      ...{ bootstrap_host: '"[fe80::1]"', bootstrap_port: "9000" },
    });
    const inUrl = { ...engineAt("p", "sglang"), url: "http://[::1]:8000/prefix" };
    expect(pairOf("sglang", { prefill: inUrl }).prefill.set.bootstrap_host).toBe('"[::1]"');
  });

  test("a room is an int63 with all its digits, never the same, and chooses the prefill engine's rank", () => {
    const random = createSeededRandom(7);
    const rooms = new Set<string>();
    let largest = 0n;
    for (let index = 0; index < 3_000; index++) {
      const rankCount = 1 + (index % 7);
      const rank = index % rankCount;
      const prefill = engineAt("p", "sglang", { rank, rankCount });
      const text = transferProtocols.sglang.pair(pairRequest("sglang", { prefill, random })).prefill.set.bootstrap_room;
      const room = BigInt(text ?? "");
      expect(String(room)).toBe(text);
      expect(room >= 0n && room < 2n ** 63n).toBe(true);
      expect(Number(room % BigInt(rankCount))).toBe(rank);
      if (room > largest) largest = room;
      rooms.add(text ?? "");
    }
    expect(rooms.size).toBe(3_000);
    expect(largest > 2n ** 62n).toBe(true);
  });

  test("at the very end of the range the room stays in it", () => {
    const random = { float: () => 0, integer: (bound: number) => bound - 1 };
    for (const rank of [0, 1, 2, 3, 4]) {
      const prefill = engineAt("p", "sglang", { rank, rankCount: 5 });
      const room = BigInt(pairOf("sglang", { prefill, random }).prefill.set.bootstrap_room ?? "");
      expect([room < 2n ** 63n, Number(room % 5n)]).toEqual([true, rank]);
    }
  });
});

describe("mooncake", () => {
  test("both legs have the same transfer; the decode leg says whose", () => {
    const prefill = engineAt("p", "mooncake", { rank: 2, rankCount: 4 });
    const legs = pairOf("mooncake", { prefill, peerId: "engine-7" });
    const sending = valuesOf(legs.prefill.set).kv_transfer_params as Record<string, unknown>;
    expect(sending).toEqual({
      ...{
        do_remote_decode: true,
        do_remote_prefill: false,
        transfer_id: expect.stringMatching(/^xfer-[0-9a-f]{32}$/),
      },
    });
    expect(legs.prefill.headers).toEqual(["x-data-parallel-rank", "2"]);
    expect(valuesOf(legs.decode(undefined)?.set)).toEqual({
      kv_transfer_params: {
        ...{ do_remote_decode: false, do_remote_prefill: true, transfer_id: sending.transfer_id },
        ...{ remote_bootstrap_addr: "http://p:8998", remote_engine_id: "engine-7" },
      },
    });
  });

  test("the prefill engine's name is asked of its bootstrap server", () => {
    const { peerQueryUrl } = transferProtocols.mooncake;
    expect(peerQueryUrl?.(engineAt("p", "mooncake", { port: 9_001 }))).toBe("http://p:9001/query");
  });

  test("no two requests have the same transfer", () => {
    const random = createSeededRandom(3);
    const ids = Array.from({ length: 500 }, () => pairOf("mooncake", { random }).prefill.set.kv_transfer_params);
    expect(new Set(ids).size).toBe(500);
  });
});

test("shared storage: the decode engine may decline first, and not the second time", () => {
  const legs = pairOf("shared-storage", { cachedShare: 0.75 });
  expect(legs.probe).toEqual({ set: { cache_hit_threshold: "0.75" }, headers: [] });
  expect(valuesOf(legs.prefill.set)).toEqual(short);
  expect(legs.decode(undefined)).toEqual({ set: { cache_hit_threshold: "0" }, headers: [] });
});

describe("trtllm", () => {
  const state = '{"request_type":"context_only","first_gen_tokens":[7],"ctx_request_id":18446744073709551615,"x":"=="}';

  test("the generation server gets what the context server answered, as another type of request", () => {
    expect(valuesOf(pairOf("trtllm").prefill.set)).toEqual({
      ...short,
      disaggregated_params: { request_type: "context_only" },
    });
    const answer = Buffer.from(`{"choices":[ {"finish_reason":"not_finished","disaggregated_params":${state}} ]}`);
    expect(pairOf("trtllm").decode(answer)?.set).toEqual({
      disaggregated_params: state.replace("context_only", "generation_only"),
    });
  });

  test.each([
    [
      "ended by itself",
      '{"choices":[{"finish_reason":"stop","disaggregated_params":{"request_type":"context_only"}}]}',
    ],
    ["has no parameters", '{"choices":[{"finish_reason":"length"}]}'],
    ["has parameters of no type", '{"choices":[{"finish_reason":"length","disaggregated_params":{}}]}'],
    ["is an error", '{"error":{}}'],
  ])("an answer that %s has no second leg", (_, text) => {
    expect(pairOf("trtllm").decode(Buffer.from(text))).toBeUndefined();
  });
});

test("p2p-nccl: both legs have an id that names both engines, each rank at its port", () => {
  const decode = engineAt("d", "p2p-nccl", { host: "10.0.0.2", port: 21_000, rank: 3, rankCount: 4 });
  const legs = pairOf("p2p-nccl", { decode });
  const [name, id] = legs.prefill.headers;
  expect(name).toBe("x-request-id");
  expect(id).toMatch(/^___prefill_addr_p:14579___decode_addr_10\.0\.0\.2:21003_[0-9a-f]{32}$/);
  expect(legs.decode(undefined)).toEqual({ set: {}, headers: legs.prefill.headers });
});
