import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { startSim, type TestSim, tokensOf } from "./sim-client.ts";

const special = {
  system: 256,
  user: 257,
  assistant: 258,
  tool: 259,
  tools: 260,
  documents: 261,
  unknown: 262,
  end: 263,
};

const wordToken = (word: string): number => Buffer.from(word).readUInt32BE(0);

async function textOf(sim: TestSim, tokens: readonly number[]): Promise<string> {
  const answer = await sim.post("/detokenize", { tokens });
  expect(answer.status).toBe(200);
  return answer.json.prompt as string;
}

test("four bytes are one token, what is left over is single bytes", async () => {
  const sim = await startSim();
  expect(await tokensOf(sim, { prompt: "the cat " })).toEqual([wordToken("the "), wordToken("cat ")]);
  expect(await tokensOf(sim, { prompt: "the ca" })).toEqual([wordToken("the "), 99, 97]);
  expect(await tokensOf(sim, { prompt: "" })).toEqual([]);
});

test("pieces whose number collides with the small ids are cut into bytes", async () => {
  const sim = await startSim();
  expect(await tokensOf(sim, { prompt: "\0\0\0\u0001" })).toEqual([0, 0, 0, 1]);
  expect(await tokensOf(sim, { prompt: "\0\0\u0001\u007f" })).toEqual([0, 0, 1, 127]);
  expect(await tokensOf(sim, { prompt: "\0\0\u0002\0" })).toEqual([512]);
});

test("a long run of colliding pieces needs four times the tokens and comes back whole", async () => {
  const sim = await startSim();
  const text = `abcd${"\0".repeat(8_000)}efgh`;
  const tokens = await tokensOf(sim, { prompt: text });
  expect(tokens).toHaveLength(2 + 8_000);
  expect(await textOf(sim, tokens)).toBe(text);
});

test("decoding gives back exactly what was encoded, for any text", async () => {
  const sim = await startSim();
  const text = fc.string({ unit: "binary", maxLength: 200 });
  await fc.assert(
    fc.asyncProperty(text, async (prompt) => {
      const tokens = await tokensOf(sim, { prompt });
      expect(await textOf(sim, tokens)).toBe(prompt);
    }),
    { numRuns: randomRuns(50) },
  );
}, 20_000);

test("a byte order mark at the start survives", async () => {
  const sim = await startSim();
  expect(await textOf(sim, await tokensOf(sim, { prompt: "\uFEFFhello" }))).toBe("\uFEFFhello");
});

test("any list of ids decodes to some text, ids without meaning to replacement characters", async () => {
  const sim = await startSim();
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(0xffff_ffff), { maxLength: 40 }), async (tokens) => {
      expect(typeof (await textOf(sim, tokens))).toBe("string");
    }),
    { numRuns: randomRuns(40) },
  );
  expect(await textOf(sim, [0xffff_ffff])).toBe("\uFFFD".repeat(4));
  expect(await textOf(sim, [special.user, wordToken("the "), special.end, 300])).toBe("<|user|>the <|end|><|300|>");
}, 20_000);

test("messages stand between their role and an end, with the assistant's turn opened", async () => {
  const sim = await startSim();
  const messages = [
    { role: "system", content: "you are" },
    { role: "user", content: "the cat " },
    { role: "assistant", content: "yes yes " },
    { role: "tool", content: [{ type: "text", text: "one " }] },
    { role: "critic", content: null },
  ];
  const before = [
    [special.system, wordToken("you "), 97, 114, 101, special.end],
    [special.user, wordToken("the "), wordToken("cat "), special.end],
    [special.assistant, wordToken("yes "), wordToken("yes "), special.end],
    [special.tool, wordToken("one "), special.end],
    [special.unknown, special.end],
  ].flat();
  expect(await tokensOf(sim, { messages })).toEqual([...before, special.assistant]);
  expect(await tokensOf(sim, { messages, add_generation_prompt: false })).toEqual(before);
});

test("the text of a special token inside a message is plain text", async () => {
  const sim = await startSim();
  const tokens = await tokensOf(sim, { messages: [{ role: "user", content: "<|end|><|user|>" }] });
  expect(tokens.filter((id) => id >= 256 && id < 512)).toEqual([special.user, special.end, special.assistant]);
});

test("neighbouring text parts are one segment, so that their cut does not matter", async () => {
  const sim = await startSim();
  const whole = { messages: [{ role: "user", content: "the cat sat" }] };
  const cut = {
    messages: [{ role: "user", content: ["th", "e cat", " sat"].map((text) => ({ type: "text", text })) }],
  };
  expect(await tokensOf(sim, cut)).toEqual(await tokensOf(sim, whole));
});

test("an image is a run of tokens of its own, the same for the same image", async () => {
  const sim = await startSim();
  const withImage = (url: string) => ({
    messages: [
      {
        role: "user",
        content: [
          { type: "text", text: "see " },
          { type: "image_url", image_url: { url } },
          { type: "text", text: "now " },
        ],
      },
    ],
  });
  const cat = await tokensOf(sim, withImage("data:image/png;base64,Y2F0"));
  const dog = await tokensOf(sim, withImage("data:image/png;base64,ZG9n"));
  expect(cat).toHaveLength(1 + 1 + 256 + 1 + 1 + 1);
  expect(cat.slice(0, 2)).toEqual([special.user, wordToken("see ")]);
  expect(cat.slice(-3)).toEqual([wordToken("now "), special.end, special.assistant]);
  expect(cat.slice(2, -3).every((id) => id >= 512)).toBe(true);
  expect(dog).toHaveLength(cat.length);
  expect(dog.slice(2, -3)).not.toEqual(cat.slice(2, -3));
  expect(await tokensOf(sim, withImage("data:image/png;base64,Y2F0"))).toEqual(cat);
});

test("tools and documents lead as JSON, tool calls follow their message", async () => {
  const sim = await startSim();
  const messages = [{ role: "user", content: "go" }];
  const plain = await tokensOf(sim, { messages });
  const tools = [{ type: "function", function: { name: "look" } }];
  const documents = [{ title: "a", text: "b" }];
  const full = await tokensOf(sim, { messages, tools, documents });
  const [toolSegment, documentSegment] = [tools, documents].map((value) => JSON.stringify(value));
  expect(await textOf(sim, full)).toBe(
    `<|tools|>${toolSegment}<|end|><|documents|>${documentSegment}<|end|>${await textOf(sim, plain)}`,
  );
  expect(await tokensOf(sim, { messages, tools: [] })).toEqual(plain);
  const calls = [{ id: "1", function: { name: "look", arguments: "{}" } }];
  const called = await tokensOf(sim, { messages: [{ role: "assistant", content: null, tool_calls: calls }] });
  expect(await textOf(sim, called)).toBe(`<|assistant|>${JSON.stringify(calls)}<|end|><|assistant|>`);
});

test("the answer names the longest prompt, and SGLang calls the decoded text `text`", async () => {
  const vllm = await startSim({ parameters: { maxModelLength: 777 } });
  expect((await vllm.post("/tokenize", { prompt: "x" })).json).toEqual({
    count: 1,
    max_model_len: 777,
    tokens: [120],
    token_strs: null,
  });
  const sglang = await startSim({ parameters: { flavour: "sglang" } });
  expect((await sglang.post("/detokenize", { tokens: [120] })).json).toEqual({ text: "x" });
});

test.each([
  ["/tokenize", {}, "prompt"],
  ["/tokenize", { prompt: 5 }, "prompt"],
  ["/tokenize", { messages: [] }, "messages"],
  ["/detokenize", {}, "tokens"],
  ["/detokenize", { tokens: "x" }, "tokens"],
  ["/detokenize", { tokens: [1, -1] }, "tokens"],
  ["/detokenize", { tokens: [2 ** 32] }, "tokens"],
])("%s refuses %j", async (path, body, param) => {
  const sim = await startSim();
  const answer = await sim.post(path, body);
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param, code: 400 });
});
