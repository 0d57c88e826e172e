import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { EspalierError } from "@espalier/core";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { afterAll, expect, test } from "vitest";
import { readTrace } from "../../src/workload/index.ts";

const folder = mkdtempSync(join(tmpdir(), "espalier-fuzz-trace-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const lines = (...rows: readonly object[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
const mooncake = lines(
  { timestamp: 0, input_length: 600, output_length: 5, hash_ids: [1, 2] },
  { timestamp: 3_000, input_length: 1_030, output_length: 50, hash_ids: [1, 2, 3] },
);
const bailian = lines(
  {
    chat_id: 1,
    parent_chat_id: -1,
    timestamp: 0.5,
    input_length: 30,
    output_length: 5,
    type: "text",
    turn: 1,
    hash_ids: [9, 8],
  },
  {
    chat_id: 2,
    parent_chat_id: 1,
    timestamp: 1.5,
    input_length: 40,
    output_length: 5,
    type: "text",
    turn: 2,
    hash_ids: [9, 8, 7],
  },
);
const azure =
  "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:01:42.0000000,4,10\n2023-11-16 18:01:43.5000000,9,1\n";

const agents = lines({
  ...{ id: "a", models: ["m"], block_size: 4, hash_id_scope: "local", tool_tokens: 4, system_tokens: 4 },
  requests: [
    { t: 0, type: "n", in: 15, out: 3, hash_ids: [[1, 3]], api_time: 2.5 },
    {
      ...{ t: 9, type: "subagent", duration_ms: 5_000, tool_tokens: 4, system_tokens: 0 },
      requests: [{ t: 0, type: "s", in: 8, out: 3, hash_ids: [[40, 2]], think_time: 0 }],
    },
    {
      t: 20.5,
      type: "s",
      in: 23,
      out: 0,
      hash_ids: [
        [1, 2],
        [5, 3],
      ],
      think_time: 3,
    },
  ],
});

const target: FuzzTarget = {
  name: "traces",
  seeds: [
    utf8(mooncake),
    utf8(bailian),
    utf8(azure),
    utf8(agents),
    gzipSync(mooncake),
    utf8(lines({ prompt: "a", output_length: 3 })),
  ],
  refuses: (thrown) => thrown instanceof EspalierError && /^trace_/.test(thrown.code),
  async read(bytes) {
    const path = join(folder, "trace");
    writeFileSync(path, bytes);
    const requests = await readTrace(path);
    expect(requests.length).toBeGreaterThan(0);
  },
};

fuzzInFile(test, "whatever a file holds is read, or refused with the line", [target]);
