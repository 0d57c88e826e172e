import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import { cacheVerdict, type LegEdits, transferProtocols, transferVerdict } from "../../src/disaggregation/index.ts";
import { pairOf } from "./legs.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const nixlParams = {
  ...{ do_remote_prefill: true, do_remote_decode: false, remote_engine_id: "5f0e-\u00e4", remote_host: "10.0.0.1" },
  ...{ remote_block_ids: [1, 2, 3], remote_port: 5_600, tp_size: 1 },
};
const trtllmParams = {
  ...{ request_type: "context_only", first_gen_tokens: [17], ctx_request_id: 2 ** 52, draft_tokens: null },
  opaque_state: 'AAAA"\\u0000//8=',
};
const answerOf = (fields: object, choice: object = {}): Uint8Array =>
  utf8(
    JSON.stringify({
      ...{ id: "chatcmpl-1", object: "chat.completion", created: 1_700_000_000, model: "m" },
      choices: [{ index: 0, message: { role: "assistant", content: "x" }, finish_reason: "length", ...choice }],
      ...{ usage: { prompt_tokens: 40, completion_tokens: 1 }, ...fields },
    }),
  );

/** What goes on to another engine as text must be one object of JSON, or the request that it becomes a part of is none. */
function expectObjects(edits: LegEdits | undefined): void {
  for (const value of Object.values(edits?.set ?? {})) expect(() => JSON.parse(value), value).not.toThrow();
}

const targets: readonly FuzzTarget[] = [
  {
    name: "answer of a NIXL prefill engine",
    seeds: [answerOf({ kv_transfer_params: nixlParams }), answerOf({ kv_transfer_params: null })],
    read: (bytes) => expectObjects(pairOf("nixl").decode(Buffer.from(bytes))),
  },
  {
    name: "answer of a TensorRT-LLM context server",
    seeds: [answerOf({}, { disaggregated_params: trtllmParams, finish_reason: "not_finished" })],
    read: (bytes) => expectObjects(pairOf("trtllm").decode(Buffer.from(bytes))),
  },
  {
    name: "answers of the other prefill engines",
    seeds: [answerOf({})],
    read(bytes, random) {
      const names = Object.keys(transferProtocols) as (keyof typeof transferProtocols)[];
      expectObjects(pairOf(names[random.integer(names.length)]!).decode(Buffer.from(bytes)));
    },
  },
  {
    name: "beginning of a decode engine's answer",
    seeds: [
      utf8('data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'),
      utf8('event: error\ndata: {"error":{"message":"no blocks","code":500}}\n\n'),
      utf8('{"choices":[{"message":{"content":""},"finish_reason":"cache_threshold"}]}'),
    ],
    read(bytes, random) {
      const head = Buffer.from(bytes);
      const isStream = random.integer(2) === 0;
      // Whatever came, its end is a verdict.
      expect(cacheVerdict(head, isStream, true)).not.toBe("more");
      expect(transferVerdict(200, head, isStream, true)).not.toBe("more");
    },
  },
];

fuzzInFile(test, "whatever comes is read, or refused as documented", targets);
