import { parseCoreList, planCores, prepareRequest, runCommand, summarizeRuns } from "@espalier/bench";
import { expect, test } from "vitest";

test.each([
  { bodyBytes: 1_000, messages: 2 },
  { bodyBytes: 4_096, messages: 2 },
  { bodyBytes: 49_152, messages: 20 },
])("a body of $bodyBytes bytes has $messages messages and that length", (shape) => {
  const { bytes, serialAt } = prepareRequest(shape);
  const text = bytes.toString("latin1");
  const body = text.slice(text.indexOf("\r\n\r\n") + 4);
  expect(body).toHaveLength(shape.bodyBytes);
  expect(text).toContain(`content-length: ${shape.bodyBytes}\r\n`);
  const { messages, stream } = JSON.parse(body);
  expect(messages).toHaveLength(shape.messages);
  expect(messages[0].role).toBe("system");
  expect(messages.slice(1, 3).map((message: { role: string }) => message.role)).toEqual(
    ["user", "assistant"].slice(0, shape.messages - 1),
  );
  expect(stream).toBeUndefined();
  expect(text.slice(serialAt, serialAt + 12)).toBe("000000000000");
  expect(text.indexOf("000000000000")).toBe(serialAt);
});

test("a streamed request says in its body how", () => {
  const text = prepareRequest({ bodyBytes: 1_000, messages: 2, stream: { tokens: 3, gapMs: 10 } }).bytes.toString();
  expect(JSON.parse(text.slice(text.indexOf("\r\n\r\n") + 4))).toMatchObject({
    stream: true,
    max_tokens: 3,
    stop: "stream 3,10",
  });
});

test("turns of one conversation differ in their last message only", () => {
  const { bytes, serialAt } = prepareRequest({ bodyBytes: 49_152, messages: 21, lastMessageBytes: 640 });
  const text = bytes.toString("latin1");
  const { messages } = JSON.parse(text.slice(text.indexOf("\r\n\r\n") + 4));
  expect(messages).toHaveLength(21);
  expect(messages[20].content).toMatch(/^0{12} /);
  expect(messages[20].content.length).toBeLessThan(700);
  expect(text.indexOf("000000000000")).toBe(serialAt);
});

test("an agent's turns bring their tools before the messages, in as many bytes as asked for", () => {
  const { bytes } = prepareRequest({ bodyBytes: 204_800, messages: 61, lastMessageBytes: 640, tools: 30 });
  const body = bytes.subarray(bytes.indexOf("\r\n\r\n") + 4);
  expect(body.length).toBe(204_800);
  const { tools, messages } = JSON.parse(body.toString());
  expect([tools.length, messages.length]).toEqual([30, 61]);
  expect(body.indexOf('"tools"')).toBeLessThan(body.indexOf('"messages"'));
  expect(JSON.stringify(tools).length).toBeGreaterThan(60_000);
});

test("messages that do not fit are refused", () => {
  expect(() => prepareRequest({ bodyBytes: 4_096, messages: 2, tools: 2 })).toThrow(RangeError);
  expect(() => prepareRequest({ bodyBytes: 1_000, messages: 20 })).toThrow(RangeError);
});

test.each([
  { list: "0", cores: [0] },
  { list: "0,1", cores: [0, 1] },
  { list: "0-3,8", cores: [0, 1, 2, 3, 8] },
])("the core list $list is read", ({ list, cores }) => {
  expect(parseCoreList(list)).toEqual(cores);
});

test("the last core is for what is measured, and one core is not divided", () => {
  expect(planCores([0, 1])).toEqual({ router: [1], others: [0] });
  expect(planCores([2, 3, 6])).toEqual({ router: [6], others: [2, 3] });
  expect(planCores([0])).toBeUndefined();
  expect(planCores([])).toBeUndefined();
});

test("a median of an even number of runs lies between the middle two, and a figure of some runs only is left out", () => {
  const runs = [{ a: 4, b: 1 }, { a: 1 }, { a: 2, b: 1 }, { a: 9, b: 1 }];
  expect(summarizeRuns(runs)).toEqual({ medians: { a: 3 }, spread: { a: { min: 1, max: 9 } } });
  expect(summarizeRuns([])).toEqual({ medians: {}, spread: {} });
});

async function command(...args: string[]): Promise<{ code: number; out: string; notes: string }> {
  let out = "";
  let notes = "";
  const code = await runCommand(args, {
    out: (text) => {
      out += text;
    },
    notes: (text) => {
      notes += text;
    },
  });
  return { code, out, notes };
}

test.each([[[]], [["nothing"]], [["proxy", "--rnus", "2"]], [["proxy", "--runs", "0"]], [["proxy", "--runs", "1.5"]]])(
  "called as %j it says what there is, and exits with 2",
  async (args: readonly string[]) => {
    const { code, out, notes } = await command(...args);
    expect(code).toBe(2);
    expect(out).toBe("");
    expect(notes).toMatch(/Usage: npm run bench/);
  },
);

test("an unknown name is answered with the known ones", async () => {
  const { notes } = await command("prxoy");
  expect(notes).toMatch(/Unknown benchmark "prxoy"[\s\S]*\n {2}proxy {2}CPU/);
});

test.each([[["--help"]], [["proxy", "--help"]]])("%j is help on standard output", async (args: readonly string[]) => {
  const { code, out, notes } = await command(...args);
  expect(code).toBe(0);
  expect(out).toMatch(/^Usage: npm run bench/);
  expect(notes).toBe("");
});
