import { readdir, readlink } from "node:fs/promises";
import { waitFor } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { maxLineBytes, maxTraceRequests, readTrace } from "../../src/workload/index.ts";
import { gzipped, jsonLines, mooncakeRow, temporaryFile } from "./helpers.ts";

const read = async (rows: readonly object[] | string, options = {}) =>
  readTrace(await temporaryFile(typeof rows === "string" ? rows : jsonLines(rows)), options);

describe("Mooncake", () => {
  test("a line becomes a request", async () => {
    const [request] = await read(
      '{"timestamp": 0, "input_length": 1300, "output_length": 52, "hash_ids": [0, 7, 9]}\n',
    );
    expect(request).toEqual({
      index: 0,
      arrivalMs: 0,
      inputTokens: 1_300,
      outputTokens: 52,
      blockIds: [0, 7, 9],
      blockTokens: 512,
      session: "session-0",
      turn: 0,
    });
  });

  test("gzipped, without a last line end, with CRLF and blank lines: all the same", async () => {
    const rows = [mooncakeRow([0, 1, 2], undefined, 0), mooncakeRow([0, 1, 5, 6], undefined, 3_000)];
    const plain = await read(rows);
    expect(plain).toHaveLength(2);
    expect(await readTrace(await temporaryFile(gzipped(jsonLines(rows)), "named-anything"))).toEqual(plain);
    expect(await read(jsonLines(rows).trimEnd())).toEqual(plain);
    expect(await read(`\n${jsonLines(rows).replaceAll("\n", "\r\n")}\r\n`)).toEqual(plain);
  });

  test("times count from the first request, and rows come in order of arrival", async () => {
    const at = (timestamp: number, id: number) => mooncakeRow([0, id], 600, timestamp);
    const requests = await read([at(9_000, 1), at(6_000, 2), at(9_000, 3)]);
    expect(requests.map((request) => [request.index, request.arrivalMs, request.blockIds![1]])).toEqual([
      [0, 0, 2],
      [1, 3_000, 1],
      [2, 3_000, 3],
    ]);
  });

  test("an output of no tokens still is one token, as engines have it", async () => {
    const [request] = await read([{ ...mooncakeRow([0]), output_length: 0 }]);
    expect(request!.outputTokens).toBe(1);
  });

  test("the partial last block may be unnamed", async () => {
    const [request] = await read([mooncakeRow([0, 1], 1_100)]);
    expect(request!.blockIds).toEqual([0, 1]);
  });
});

describe("sessions of a trace without sessions", () => {
  const sessionsOf = async (chains: readonly (readonly number[])[]) =>
    (await read(chains.map((chain) => mooncakeRow(chain)))).map(
      (request) => `${request.session.slice(8)}.${request.turn}`,
    );

  // The last block of each chain is partial, so it is not repeated by what follows.
  test.each([
    [
      "block 0 alone joins nobody",
      [
        [0, 1],
        [0, 2],
        [0, 3],
      ],
      ["0.0", "1.0", "2.0"],
    ],
    [
      "a follow-up repeats the full blocks and goes on",
      [
        [0, 1, 2],
        [0, 1, 3, 4],
        [0, 1, 3, 5],
      ],
      ["0.0", "0.1", "0.2"],
    ],
    [
      "the same prompt again",
      [
        [0, 1, 2],
        [0, 1, 2],
      ],
      ["0.0", "0.1"],
    ],
    [
      "two conversations in turn",
      [
        [0, 1, 2],
        [0, 8, 9],
        [0, 1, 3],
        [0, 8, 7],
      ],
      ["0.0", "1.0", "0.1", "1.1"],
    ],
    [
      "a shared preamble is no session: the earlier prompt must be repeated whole",
      [
        [0, 1, 2, 3],
        [0, 1, 4, 5],
      ],
      ["0.0", "1.0"],
    ],
    [
      "the longest earlier prompt wins",
      [
        [0, 1, 2, 3, 9],
        [0, 1, 9],
        [0, 1, 2, 3, 4, 9],
      ],
      ["0.0", "1.0", "0.1"],
    ],
    [
      "two forks of one prompt stay in its session",
      [
        [0, 1, 9],
        [0, 1, 2, 9],
        [0, 1, 3, 9],
      ],
      ["0.0", "0.1", "0.2"],
    ],
    [
      "the same id after another beginning is another block",
      [
        [5, 1, 2],
        [6, 1, 2],
      ],
      ["0.0", "1.0"],
    ],
  ])("%s", async (_what, chains, expected) => {
    expect(await sessionsOf(chains)).toEqual(expected);
  });
});

describe("Qwen-Bailian", () => {
  const chat = (chatId: number, parent: number, timestamp: number, hashIds: readonly number[]) => ({
    chat_id: chatId,
    parent_chat_id: parent,
    timestamp,
    input_length: hashIds.length * 16,
    output_length: 5,
    type: "text",
    turn: 1,
    hash_ids: hashIds,
  });

  test("seconds become milliseconds, and a session is its chain of parents", async () => {
    const requests = await read([
      chat(10, -1, 60.5, [1, 2]),
      chat(11, -1, 61, [3]),
      chat(12, 10, 61.25, [1, 2, 4]),
      chat(13, 12, 62, [1, 2, 4, 5]),
      chat(14, 999, 63, [6]),
      chat(15, 999, 64, [7]),
    ]);
    expect(requests.map((request) => [request.session, request.turn])).toEqual([
      ["chat-10", 0],
      ["chat-11", 0],
      ["chat-10", 1],
      ["chat-10", 2],
      ["chat-999", 0],
      ["chat-999", 1],
    ]);
    expect(requests.map((request) => request.arrivalMs)).toEqual([0, 500, 750, 1_500, 2_500, 3_500]);
    expect(requests[0]).toMatchObject({ blockTokens: 16, blockIds: [1, 2] });
  });
});

describe("Azure", () => {
  test("both ways to write the time, each request its own session", async () => {
    const requests = await read(
      [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:17:03.9799600,4808,10",
        "2023-11-16 18:17:04.0319600,110,27",
        "2023-11-17 00:00:00+00:00,12,1",
      ].join("\r\n"),
    );
    expect(requests.map((request) => request.inputTokens)).toEqual([4_808, 110, 12]);
    expect(requests[1]!.arrivalMs).toBeCloseTo(52, 3);
    expect(requests[2]!.arrivalMs).toBeCloseTo(20_576_020.04, 1);
    expect(requests[0]).toMatchObject({ blockIds: undefined, outputTokens: 10, turn: 0 });
    expect(new Set(requests.map((request) => request.session)).size).toBe(3);
  });
});

describe("prompts", () => {
  test("texts and messages, with and without what is optional", async () => {
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "hi" }], name: "ann" },
    ];
    const requests = await read([
      { prompt: "twelve bytes" },
      { prompt: "grüße", max_tokens: 7, session: "a", timestamp: 1_500 },
      { messages, session: "a" },
      { messages, session: 17 },
    ]);
    expect(requests[0]).toMatchObject({ prompt: "twelve bytes", inputTokens: 3, outputTokens: 128, arrivalMs: 0 });
    expect(requests.map(({ maxOutputTokens }) => maxOutputTokens)).toEqual([undefined, 7, undefined, undefined]);
    expect(requests[1]).toMatchObject({ inputTokens: 2, outputTokens: 7, arrivalMs: 1_500, session: "a", turn: 0 });
    expect(requests[2]).toMatchObject({ prompt: messages, arrivalMs: 1_500, session: "a", turn: 1 });
    expect(requests[3]!.session).toBe("17");
    expect(requests[0]!.session).not.toBe("a");
  });
});

describe("the format", () => {
  test("may be given, and then is not guessed", async () => {
    const row = { ...mooncakeRow([0, 1]), prompt: "also here" };
    expect((await read([row]))[0]!.prompt).toBe("also here");
    expect((await read([row], { format: "mooncake" }))[0]!.blockIds).toEqual([0, 1]);
  });

  test("a limit reads the beginning and nothing behind it", async () => {
    const rows = `${jsonLines([mooncakeRow([0, 1]), mooncakeRow([0, 2])])}not a line of a trace\n`;
    expect(await read(rows, { limit: 2 })).toHaveLength(2);
    await expect(read(rows, { limit: 3 })).rejects.toMatchObject({ code: "trace_invalid" });
  });
});

// NOT RUN where there is no /proc to count open files in.
test.skipIf(process.platform !== "linux")(
  "no file stays open: after the end, after a limit, after an error",
  async () => {
    const rows = jsonLines(Array.from({ length: 20_000 }, (_, i) => mooncakeRow([0, i])));
    const plain = await temporaryFile(rows);
    const zipped = await temporaryFile(gzipped(rows));
    const broken = await temporaryFile(gzipped(`${rows}[]\n${rows}`));
    const openCount = async (): Promise<number> => {
      const links = await Promise.all(
        (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => "")),
      );
      return links.filter((link) => [plain, zipped, broken].includes(link)).length;
    };
    for (const path of [plain, zipped]) {
      await readTrace(path);
      await readTrace(path, { limit: 1 });
    }
    await expect(readTrace(broken)).rejects.toMatchObject({ code: "trace_invalid" });
    await waitFor(async () => (await openCount()) === 0, { what: "closed files" });
  },
);

describe("what is wrong is said with line and field", () => {
  const good = mooncakeRow([0, 1]);
  const message = { messages: [{ role: "user", content: "x" }] };
  const bad: readonly (readonly [string, string, string, string])[] = [
    ["not JSON", `${jsonLines([good])}{"timestamp": 1,`, ":2: line: is not valid JSON", "line"],
    ["an array", `${jsonLines([good])}[1]`, ":2: line: is not an object", "line"],
    ["blank lines count", `${jsonLines([good])}\n\n{}`, ":4: timestamp: must be a number, is absent", "timestamp"],
    [
      "text for a number",
      jsonLines([{ ...good, timestamp: "0" }]),
      ':1: timestamp: must be a number, is "0"',
      "timestamp",
    ],
    ["no tokens", jsonLines([{ ...good, input_length: 0 }]), ":1: input_length: must be", "input_length"],
    ["half a token", jsonLines([{ ...good, output_length: 1.5 }]), ":1: output_length: must be", "output_length"],
    ["2^31 tokens", jsonLines([{ ...good, output_length: 2 ** 31 }]), ":1: output_length: must be", "output_length"],
    ["too few blocks", jsonLines([mooncakeRow([0, 1], 1_600)]), "must name 3 or 4 blocks for 1600 tokens", "hash_ids"],
    ["too many blocks", jsonLines([mooncakeRow([0, 1, 2], 1_000)]), "must name 1 or 2 blocks", "hash_ids"],
    ["a negative block", jsonLines([mooncakeRow([0, -1])]), "whole numbers, holds -1", "hash_ids"],
    ["a block by name", jsonLines([{ ...good, hash_ids: ["a", "b"] }]), 'whole numbers, holds "a"', "hash_ids"],
    ["blocks that are no list", jsonLines([{ ...good, hash_ids: 3 }]), "must be a list, is 3", "hash_ids"],
    ["no parent", jsonLines([{ chat_id: 1 }]), "parent_chat_id: must be a number or a string", "parent_chat_id"],
    ["neither kind of prompt", `${jsonLines([{ prompt: "x" }])}{}`, ":2: prompt: a line has either", "prompt"],
    ["both kinds of prompt", jsonLines([{ prompt: "x", ...message }]), ":1: prompt: a line has either", "prompt"],
    ["an empty prompt", jsonLines([{ prompt: "" }]), "prompt: must be a text", "prompt"],
    ["no messages", jsonLines([{ messages: [] }]), "messages: must be a list", "messages"],
    ["a message without role", jsonLines([{ messages: [{ content: "x" }] }]), "an object with a role", "messages"],
    ["no output asked for", jsonLines([{ prompt: "x", max_tokens: 0 }]), "max_tokens: must be", "max_tokens"],
    ["an empty session", jsonLines([{ prompt: "x", session: "" }]), "session: must be", "session"],
    ["no time", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1", ":2: TIMESTAMP: must be a time", "TIMESTAMP"],
    [
      "a column short",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5",
      ":2: GeneratedTokens: must be",
      "GeneratedTokens",
    ],
    ["an unknown object", '{"a": 1}', "none of mooncake, bailian, azure, prompts", "line"],
    ["an unknown table", "time,tokens\n1,2", "none of mooncake", "line"],
    ["nothing", "\n", "holds no request", "line"],
    ["a header alone", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request", "line"],
  ];
  test.each(bad)("%s", async (_what, content, problem, param) => {
    await expect(read(content)).rejects.toMatchObject({
      code: "trace_invalid",
      param,
      message: expect.stringContaining(problem),
    });
  });

  test("a file that is absent, a folder, and damaged gzip", async () => {
    const path = await temporaryFile("");
    const whole = gzipped(jsonLines(Array.from({ length: 5_000 }, (_, i) => mooncakeRow([0, i * 7919]))));
    const cut = await temporaryFile(whole.subarray(0, whole.length / 2));
    for (const unreadable of [`${path}.absent`, `${path}/..`, cut]) {
      await expect(readTrace(unreadable)).rejects.toMatchObject({
        code: "trace_unreadable",
        message: expect.stringContaining(unreadable),
      });
    }
  });
});

describe("bounds", () => {
  test("a line of the longest length is read, one byte more is refused", async () => {
    const line = (bytes: number) => `{"prompt":"${"x".repeat(bytes - '{"prompt":""}'.length)}"}`;
    const [request] = await read(`${line(maxLineBytes)}\n`);
    expect(request!.prompt).toHaveLength(maxLineBytes - 13);
    const tooLong = await temporaryFile(gzipped(`{"prompt":"x"}\n${line(maxLineBytes + 1)}\n`));
    await expect(readTrace(tooLong)).rejects.toMatchObject({
      code: "trace_invalid",
      message: expect.stringContaining(":2: the line is longer than"),
    });
  });

  test("one request past the most is refused, unless a limit asks for the beginning", async () => {
    const path = await temporaryFile(gzipped('{"prompt":"x"}\n'.repeat(maxTraceRequests + 1)));
    await expect(readTrace(path)).rejects.toMatchObject({
      message: expect.stringContaining(`:${maxTraceRequests + 1}: line: more than ${maxTraceRequests} requests`),
    });
    expect(await readTrace(path, { limit: 10 })).toHaveLength(10);
  }, 60_000);
});
