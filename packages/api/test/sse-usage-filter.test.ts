import { describe, expect, test } from "vitest";
import { createSseUsageFilter, readAnswerHead, type SseUsageFilter, type Usage } from "../src/index.ts";

const chunkEvent = (content: string, more = "") =>
  `data: {"id":"c","choices":[{"index":0,"delta":{"content":${JSON.stringify(content)}}}]${more}}\n\n`;
const usageEvent =
  'data: {"id":"c","choices":[],"usage":{"prompt_tokens":105,"total_tokens":145,"completion_tokens":40,"prompt_tokens_details":{"cached_tokens":32}}}\n\n';
const doneEvent = "data: [DONE]\n\n";
const usage: Usage = { promptTokens: 105, completionTokens: 40, cachedTokens: 32 };

interface Outcome {
  readonly filter: SseUsageFilter;
  readonly output: string;
}

function run(strip: boolean, chunks: readonly (string | Buffer)[]): Outcome {
  const filter = createSseUsageFilter({ strip });
  const out = chunks.map((chunk) => filter.push(Buffer.from(chunk)));
  out.push(filter.end());
  return { filter, output: Buffer.concat(out.filter((piece) => piece !== undefined)).toString("utf8") };
}

describe("without strip", () => {
  test("every chunk passes at once, by reference, wherever it was cut", () => {
    const filter = createSseUsageFilter({ strip: false });
    for (const text of ["da", 'ta: {"a":1}\n', "\ndata: ", "x\n\n", usageEvent, "", "\n\n\n", doneEvent.slice(0, 9)]) {
      const chunk = Buffer.from(text);
      expect(filter.push(chunk)).toBe(chunk);
    }
    expect(filter.end()).toBeUndefined();
  });

  test("usage and the end are seen all the same", () => {
    const { filter } = run(false, [chunkEvent("a"), usageEvent, doneEvent]);
    expect(filter.usage()).toEqual(usage);
    expect(filter.sawDone()).toBe(true);
    expect(filter.endedProperly()).toBe(true);
    expect(filter.tokensSeen()).toBe(2);
  });
});

describe("with strip", () => {
  test("a chunk of whole events passes by reference", () => {
    const filter = createSseUsageFilter({ strip: true });
    const one = Buffer.from(chunkEvent("a"));
    const two = Buffer.from(chunkEvent("b") + chunkEvent("c"));
    expect(filter.push(one)).toBe(one);
    expect(filter.push(two)).toBe(two);
  });

  test("complete events pass at once, the incomplete one is held back until it is complete", () => {
    const filter = createSseUsageFilter({ strip: true });
    const event = chunkEvent("b");
    expect(filter.push(Buffer.from(chunkEvent("a") + event.slice(0, 10)))?.toString()).toBe(chunkEvent("a"));
    expect(filter.push(Buffer.from(event.slice(10, -1)))).toBeUndefined();
    expect(filter.push(Buffer.from(`\n${chunkEvent("c")}`))?.toString()).toBe(event + chunkEvent("c"));
    expect(filter.end()).toBeUndefined();
  });

  test.each([
    ["alone in its chunk", [chunkEvent("a"), usageEvent, doneEvent]],
    ["with the events around it", [chunkEvent("a") + usageEvent + doneEvent]],
    ["first in its chunk", [chunkEvent("a"), usageEvent + doneEvent]],
    ["last in its chunk", [chunkEvent("a") + usageEvent, doneEvent]],
    ["cut in its middle", [chunkEvent("a") + usageEvent.slice(0, 70), usageEvent.slice(70) + doneEvent]],
    ["cut inside the blank line", [chunkEvent("a") + usageEvent.slice(0, -1), `\n${doneEvent}`]],
    ["without the blank line, at the very end", [chunkEvent("a") + doneEvent + usageEvent.slice(0, -2)]],
  ])("the usage-only event is taken out: %s", (_, chunks) => {
    const { filter, output } = run(true, chunks);
    expect(output).toBe(chunkEvent("a") + doneEvent);
    expect(filter.usage()).toEqual(usage);
    expect(filter.sawDone()).toBe(true);
  });

  test("a chunk with nothing else in it gives nothing", () => {
    const filter = createSseUsageFilter({ strip: true });
    expect(filter.push(Buffer.from(usageEvent))).toBeUndefined();
  });

  test.each([
    ["usage beside a choice", chunkEvent("a", ',"usage":{"prompt_tokens":1,"completion_tokens":2}')],
    ["usage null", chunkEvent("a", ',"usage":null')],
    ["no choices and no usage", 'data: {"choices":[],"prompt_filter_results":[]}\n\n'],
    ["no choices and usage null", 'data: {"choices":[],"usage":null}\n\n'],
    ["no choices and an empty usage", 'data: {"choices":[],"usage":{}}\n\n'],
    ["usage without choices", 'data: {"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'],
    ["choices deeper down only", 'data: {"x":{"choices":[]},"usage":{"prompt_tokens":1}}\n\n'],
    ["choices that have empty ones in them", 'data: {"choices":[{"choices":[]}],"usage":{"prompt_tokens":1}}\n\n'],
    ["a text that looks like it", chunkEvent('"choices":[],"usage":{"prompt_tokens":1}')],
    ["data that is no JSON", 'data: "choices":[],"usage":{"prompt_tokens":1}\n\n'],
    ["a comment that looks like it", `: ${usageEvent.slice(6)}`],
    ["an error", 'data: {"error":{"message":"max_tokens"}}\n\n'],
  ])("an event that has more to say stays: %s", (_, event) => {
    expect(run(true, [event]).output).toBe(event);
    expect(run(true, [event + doneEvent]).output).toBe(event + doneEvent);
  });

  test.each([
    ["spaces", usageEvent.replace('"choices":[]', '"choices" : [ ]')],
    ["CR LF", usageEvent.replaceAll("\n", "\r\n")],
    ["no space behind the colon", usageEvent.replace("data: ", "data:")],
    ["an event name", `event: usage\n${usageEvent}`],
    ["a comment above it", `: ping\n${usageEvent}`],
    ["two data lines", usageEvent.replace(',"usage"', '\ndata: ,"usage"')],
    [
      "usage first",
      'data: {"usage":{"prompt_tokens":105,"completion_tokens":40,"prompt_tokens_details":{"cached_tokens":32}},"choices":[]}\n\n',
    ],
  ])("the usage-only event is known in other dress: %s", (_, event) => {
    const { filter, output } = run(true, [chunkEvent("a") + event + doneEvent]);
    expect(output).toBe(chunkEvent("a") + doneEvent);
    expect(filter.usage()).toEqual(usage);
  });

  test("bytes that are held back at the end are handed over", () => {
    const half = chunkEvent("a").slice(0, 20);
    expect(run(true, [chunkEvent("b") + half]).output).toBe(chunkEvent("b") + half);
  });

  test("more than one usage-only event is taken out, and the last one counts", () => {
    const later = usageEvent.replace("105", "106");
    const { filter, output } = run(true, [usageEvent + chunkEvent("a") + later + later + chunkEvent("b")]);
    expect(output).toBe(chunkEvent("a") + chunkEvent("b"));
    expect(filter.usage()?.promptTokens).toBe(106);
  });
});

describe("usage is read in every dialect", () => {
  const named = (name: string, data: object) => `event: ${name}\ndata: ${JSON.stringify({ type: name, ...data })}\n\n`;
  const start = (tokens: object) => named("message_start", { message: { id: "m", content: [], usage: tokens } });
  const delta = (tokens: object) => named("message_delta", { delta: { stop_reason: "end_turn" }, usage: tokens });
  const text = named("content_block_delta", { index: 0, delta: { type: "text_delta", text: "hello _tokens" } });
  const report = (completion_tokens: number) =>
    `data: ${JSON.stringify({ text: "x", meta_info: { prompt_tokens: 70, completion_tokens, cached_tokens: 64 } })}\n\n`;

  test.each<[string, string, Usage | undefined]>([
    ["chat or completions", chunkEvent("a") + usageEvent, usage],
    [
      "without details of the prompt",
      'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}\n\n',
      { promptTokens: 5, completionTokens: 6, cachedTokens: undefined },
    ],
    [
      "with details null",
      'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6,"prompt_tokens_details":null}}\n\n',
      { promptTokens: 5, completionTokens: 6, cachedTokens: undefined },
    ],
    [
      "running totals in every chunk",
      [1, 2, 3].map((count) => chunkEvent("a", `,"usage":{"prompt_tokens":9,"completion_tokens":${count}}`)).join(""),
      { promptTokens: 9, completionTokens: 3, cachedTokens: undefined },
    ],
    [
      "the Responses API",
      named("response.created", { response: { id: "r", usage: null } }) +
        named("response.output_text.delta", { delta: "a" }) +
        named("response.completed", {
          response: {
            id: "r",
            usage: {
              input_tokens: 36,
              input_tokens_details: { cached_tokens: 16 },
              output_tokens: 87,
              total_tokens: 123,
            },
          },
        }),
      { promptTokens: 36, completionTokens: 87, cachedTokens: 16 },
    ],
    [
      "Anthropic: the prompt at the start, the output at the end",
      start({ input_tokens: 25, output_tokens: 1 }) + text + delta({ output_tokens: 15 }),
      { promptTokens: 25, completionTokens: 15, cachedTokens: undefined },
    ],
    [
      "Anthropic with a cache: cached tokens are counted beside the others",
      start({ input_tokens: 5, cache_read_input_tokens: 64, cache_creation_input_tokens: 3, output_tokens: 1 }) +
        delta({ output_tokens: 15 }),
      { promptTokens: 72, completionTokens: 15, cachedTokens: 64 },
    ],
    [
      "vLLM's Anthropic API: what the end says of the prompt counts",
      start({ input_tokens: 100, output_tokens: 0 }) +
        delta({ input_tokens: 36, cache_read_input_tokens: 64, cache_creation_input_tokens: 0, output_tokens: 15 }),
      { promptTokens: 100, completionTokens: 15, cachedTokens: 64 },
    ],
    [
      "Anthropic, cut behind the start",
      start({ input_tokens: 25, output_tokens: 1 }) + text,
      { promptTokens: 25, completionTokens: 1, cachedTokens: undefined },
    ],
    [
      "SGLang's own API",
      report(1) + report(2) + report(50),
      { promptTokens: 70, completionTokens: 50, cachedTokens: 64 },
    ],
    ["none", chunkEvent("a") + doneEvent, undefined],
    ["null", chunkEvent("a", ',"usage":null') + doneEvent, undefined],
    ["only the output", named("message_delta", { usage: { output_tokens: 3 } }), undefined],
    [
      "numbers that are none",
      'data: {"choices":[],"usage":{"prompt_tokens":"5","completion_tokens":-6}}\n\n',
      undefined,
    ],
    ["a text that mentions it", chunkEvent('{"usage":{"prompt_tokens":1,"completion_tokens":1}}'), undefined],
    ["a token _tokens among log-probabilities", chunkEvent("a", ',"logprobs":{"token":"_tokens"}') + usageEvent, usage],
  ])("%s", (_, stream, expected) => {
    expect(run(false, [stream]).filter.usage()).toEqual(expected);
    expect(run(true, [stream]).filter.usage()).toEqual(expected);
  });

  test("an event that is cut inside its data does not put away the report before it", () => {
    expect(run(false, [report(1), report(2), report(3).slice(0, -10)]).filter.usage()?.completionTokens).toBe(2);
  });

  test("it can be asked for at any time", () => {
    const filter = createSseUsageFilter({ strip: false });
    expect(filter.usage()).toBeUndefined();
    filter.push(Buffer.from(report(1)));
    expect(filter.usage()?.completionTokens).toBe(1);
    filter.push(Buffer.from(report(2)));
    expect(filter.usage()?.completionTokens).toBe(2);
  });
});

describe("a complete stream is told from one that was cut", () => {
  test.each([
    // stream, sawDone, endedProperly
    ["data: [DONE]\n\n", true, true],
    ["data:[DONE]\n\n", true, true],
    ["data: [DONE]\r\n\r\n", true, true],
    ["data: [DONE]\n", true, true],
    ["data: [DONE]", true, true],
    ["event: done\ndata: [DONE]\n\n", true, true],
    ["data: [DON", false, false],
    ["data: [DONE] and more\n\n", false, false],
    ['data: "[DONE]"\n\n', false, false],
    [": data: [DONE]\n\n", false, false],
    [chunkEvent("[DONE]"), false, false],
    [chunkEvent("data: [DONE]\n\n"), false, false],
    ['event: message_stop\ndata: {"type":"message_stop"}\n\n', false, true],
    ['event:message_stop\r\ndata: {"type":"message_stop"}\r\n\r\n', false, true],
    ['event: message_stop\ndata: {"type":"message_stop"}', false, true],
    ["event: message_stop\n", false, false],
    ['event: message_stop\ndata: {"type":"mess', false, false],
    ['event: message_stopped\ndata: {"type":"x"}\n\n', false, false],
    ['event: content_block_stop\ndata: {"type":"content_block_stop"}\n\n', false, false],
    ['data: {"choices":[{"delta":{"content":"event: message_stop\\n"}}]}\n\n', false, false],
    ['event: response.completed\ndata: {"response":{}}\n\n', false, true],
    ['event: response.failed\ndata: {"response":{}}\n\n', false, true],
    ['event: response.incomplete\ndata: {"response":{}}\n\n', false, true],
    ['event: response.completed\ndata: {"response":{', false, false],
    ['event: response.created\ndata: {"response":{}}\n\n', false, false],
    ['event: error\ndata: {"type":"error","error":{}}\n\n', false, true],
    ["", false, false],
  ])("%j", (stream, sawDone, endedProperly) => {
    for (const strip of [false, true]) {
      const { filter, output } = run(strip, [chunkEvent("a"), stream]);
      expect([filter.sawDone(), filter.endedProperly()]).toEqual([sawDone, endedProperly]);
      expect(output).toBe(chunkEvent("a") + stream);
    }
  });
});

describe("tokensSeen counts data events", () => {
  test.each([
    ["nothing", "", 0],
    ["three chunks and the end", chunkEvent("a") + chunkEvent("b") + chunkEvent("c") + doneEvent, 3],
    ["comments and blank lines", `: ping\n\n\n\n\r\n${chunkEvent("a")}: pong\n\n`, 1],
    ["named events", 'event: ping\ndata: {"type":"ping"}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n', 2],
    ["an incomplete event", `${chunkEvent("a")}data: {"x`, 1],
    ["CR LF", (chunkEvent("a") + chunkEvent("b")).replaceAll("\n", "\r\n"), 2],
    ["mixed line ends", 'data: {"a":1}\r\n\ndata: {"b":1}\n\r\ndata: {"c":1}\n\n', 3],
  ])("%s", (_, stream, expected) => {
    expect(run(false, [stream]).filter.tokensSeen()).toBe(expected);
    expect(run(true, [stream]).filter.tokensSeen()).toBe(expected);
  });
});

describe("insideEvent tells whether an error frame needs a blank line before it", () => {
  test("without strip: whenever the last chunk ended inside an event", () => {
    const filter = createSseUsageFilter({ strip: false });
    expect(filter.insideEvent()).toBe(false);
    filter.push(Buffer.from("data: {"));
    expect(filter.insideEvent()).toBe(true);
    filter.push(Buffer.from("}\n"));
    expect(filter.insideEvent()).toBe(true);
    filter.push(Buffer.from("\n"));
    expect(filter.insideEvent()).toBe(false);
  });

  test("with strip: never, because what is incomplete was not sent", () => {
    const filter = createSseUsageFilter({ strip: true });
    filter.push(Buffer.from(`${chunkEvent("a")}data: {`));
    expect(filter.insideEvent()).toBe(false);
  });
});

describe("an event of 1 MiB is held, a longer one passes unread", () => {
  const bound = 1_048_576;
  const frame = 'data: {"x":""}\n\n';
  /** An event of `size` bytes, cut into chunks that do not end with it. */
  const big = (size: number): Buffer[] => {
    const event = Buffer.from(frame.replace('""', `"${"y".repeat(size - frame.length)}"`));
    const chunks: Buffer[] = [];
    for (let at = 0; at < event.length; at += 100_000) chunks.push(event.subarray(at, at + 100_000));
    return chunks;
  };

  test.each([
    ["at the bound", bound + 2, 0],
    ["one past it", bound + 3, bound + 1],
  ])("%s", (_, size, passedBeforeItsEnd) => {
    const filter = createSseUsageFilter({ strip: true });
    const event = Buffer.concat(big(size));
    // All but the last two bytes are what must be held.
    const head = filter.push(event.subarray(0, -2));
    expect(head?.length ?? 0).toBe(passedBeforeItsEnd);
    expect(filter.insideEvent()).toBe(passedBeforeItsEnd > 0);
    const tail = filter.push(event.subarray(-2));
    expect(Buffer.concat([head ?? Buffer.alloc(0), tail ?? Buffer.alloc(0)]).equals(event)).toBe(true);
    expect(filter.insideEvent()).toBe(false);
    expect(filter.tokensSeen()).toBe(1);
  });

  test("events around it, and behind it, are treated as ever", () => {
    const chunks = [Buffer.from(chunkEvent("a")), ...big(3 * bound), Buffer.from(usageEvent), Buffer.from(doneEvent)];
    const { filter, output } = run(true, chunks);
    expect(output.length).toBe(chunkEvent("a").length + 3 * bound + doneEvent.length);
    expect(output.endsWith(`"}\n\n${doneEvent}`)).toBe(true);
    expect(filter.usage()).toEqual(usage);
    expect(filter.tokensSeen()).toBe(3);
  });

  test("one that begins behind another event in its chunk keeps its order", () => {
    const event = Buffer.concat(big(2 * bound));
    const { output } = run(true, [
      Buffer.concat([Buffer.from(usageEvent + chunkEvent("a")), event.subarray(0, -1)]),
      Buffer.concat([event.subarray(-1), Buffer.from(chunkEvent("b"))]),
    ]);
    expect(output === chunkEvent("a") + event.toString() + chunkEvent("b")).toBe(true);
  });

  test("its name still ends the stream, once it is complete", () => {
    for (const strip of [false, true]) {
      const filter = createSseUsageFilter({ strip });
      filter.push(Buffer.from("event: response.completed\n"));
      for (const chunk of big(2 * bound).slice(0, -1)) filter.push(chunk);
      expect(filter.endedProperly()).toBe(false);
      expect(filter.insideEvent()).toBe(true);
      filter.push(Buffer.from("\n\n"));
      expect(filter.endedProperly()).toBe(true);
      expect(filter.end()).toBeUndefined();
    }
  });

  test("a report at its end is not read, and does not put away the one before it", () => {
    for (const strip of [false, true]) {
      const tail = usageEvent.replace("105", "106").slice("data: {".length);
      const long = Buffer.from(`data: {"x":"${"y".repeat(bound + 500)}",${tail}`);
      const before = usageEvent.replace("105", "104") + usageEvent;
      const { filter, output } = run(strip, [before, long.subarray(0, -200), long.subarray(-200)]);
      expect(filter.usage()).toEqual(usage);
      expect(output === (strip ? "" : before) + long.toString()).toBe(true);
    }
  });

  test("in a million chunks of one byte it costs no more than its bytes", () => {
    const filter = createSseUsageFilter({ strip: true });
    const y = Buffer.from("y");
    let passed = 0;
    for (let count = 0; count <= bound; count++) passed += filter.push(y)?.length ?? 0;
    expect(passed).toBe(bound + 1);
  });
});

// A stream whose lines end in CR alone, as they may, was held back until it ended: only LF was taken for a line end.
test("a stream whose lines end in carriage returns alone passes event by event, its usage taken out", () => {
  const filter = createSseUsageFilter({ strip: true });
  const events = ['data: {"choices":[{"delta":{"content":"a"}}]}\r\r', "data: [DONE]\r\r"];
  const report = 'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\r\r';
  expect(filter.push(Buffer.from(events[0]!))?.toString()).toBe(events[0]);
  expect(filter.push(Buffer.from(report))).toBeUndefined();
  expect(filter.push(Buffer.from(events[1]!))?.toString()).toBe(events[1]);
  expect([filter.usage()?.promptTokens, filter.sawDone(), filter.end()]).toEqual([3, true, undefined]);
});

/*
 * Asked for usage, engines put into the chunk of usage what else they would have put into the last one: vLLM its fingerprint,
 * llama.cpp its timings. With that chunk they were lost; left as a chunk without choices, they broke clients that read
 * `choices[0]`.
 */
describe("with strip, what else is in the event of usage belongs to the event before it", () => {
  const usageMember = '"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}';
  const ending = (more = "", reason = '"stop"') =>
    `data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":${reason}}]${more}}\n\n`;
  const usageOnly = (more: string) => `data: {"id":"c","choices":[],${usageMember}${more}}\n\n`;
  const fingerprint = ',"system_fingerprint":"vllm-0.32.0-\u00e9"';
  const timings = ',"timings":{"prompt_ms":12345678901234567890}';

  test.each([
    ["vLLM's fingerprint", [ending(), usageOnly(fingerprint)], [ending(fingerprint)]],
    ["llama.cpp's timings", [ending(fingerprint), usageOnly(fingerprint + timings)], [ending(fingerprint + timings)]],
    ["nothing", [ending(), usageOnly("")], [ending()]],
    ["null", [ending(), usageOnly(',"sglext":null')], [ending()]],
    ["in front of usage", [ending(), `data: {"timings":1,"choices":[],${usageMember}}\n\n`], [ending(',"timings":1')]],
    [
      "of the last of several choices",
      [ending(), chunkEvent("a"), ending(), usageOnly(fingerprint)],
      [ending(), chunkEvent("a"), ending(fingerprint)],
    ],
    [
      "with spaces",
      [ending().replace('son":"', 'son": "'), usageOnly(fingerprint)],
      [ending(fingerprint).replace('son":"', 'son": "')],
    ],
    [
      "of an event in several lines, which stays as it is",
      [ending().replace("}\n", "\ndata: }\n"), usageOnly(fingerprint)],
      [ending().replace("}\n", "\ndata: }\n"), `data: {"id":"c","choices":[]${fingerprint}}\n\n`],
    ],
    [
      "with CR LF",
      [ending().replaceAll("\n", "\r\n"), usageOnly(fingerprint).replaceAll("\n", "\r\n")],
      [ending(fingerprint).replaceAll("\n", "\r\n")],
    ],
    ["of no event with a reason", [ending("", "null"), usageOnly("")], [ending("", "null")]],
    ["nothing, as usage was not reported", [ending()], [ending()]],
  ])("%s", (_, events, kept) => {
    const stream = [chunkEvent("a"), ...events, doneEvent];
    const expected = [chunkEvent("a"), ...kept, doneEvent].join("");
    expect(run(true, stream).output).toBe(expected);
    expect(run(true, [stream.join("")]).output).toBe(expected);
    expect(run(true, [...stream.join("")]).output).toBe(expected);
  });

  test("an event with a reason waits for the next event, no longer, and for none that is not whole", () => {
    const filter = createSseUsageFilter({ strip: true });
    expect(filter.push(Buffer.from(chunkEvent("a") + ending()))?.toString()).toBe(chunkEvent("a"));
    expect(filter.push(Buffer.from(usageOnly(timings).slice(0, -1)))).toBeUndefined();
    expect(filter.push(Buffer.from("\n"))?.toString()).toBe(ending(timings));
    expect(filter.push(Buffer.from(ending()))).toBeUndefined();
    expect(filter.push(Buffer.from(": ping\n\n"))?.toString()).toBe(`${ending()}: ping\n\n`);
    expect(filter.push(Buffer.from(ending()))).toBeUndefined();
    const long = `data: "${"x".repeat(1_048_576)}`;
    expect(filter.push(Buffer.from(long))?.toString() === ending() + long).toBe(true);
  });

  test("the event with a reason that waits when a stream is cut is handed over, once", () => {
    const filter = createSseUsageFilter({ strip: true });
    filter.push(Buffer.from(ending() + usageOnly("").slice(0, 20)));
    expect(filter.cut()?.toString()).toBe(ending());
    expect(filter.cut()).toBeUndefined();
  });

  test("a stream that ends there is whole", () => {
    expect(run(true, [ending()]).output).toBe(ending());
    expect(run(true, [ending(), usageOnly(timings).trimEnd()]).output).toBe(ending(timings));
    expect(run(true, [ending(), doneEvent.slice(0, 9)]).output).toBe(ending() + doneEvent.slice(0, 9));
  });

  test.each([
    [
      "last",
      `{"id":"c","choices":[],"timings":{"n":12345678901234567890},${usageMember}}`,
      '{"id":"c","choices":[],"timings":{"n":12345678901234567890}}',
    ],
    ["in the middle", `{"choices":[], ${usageMember} , "timings":"\u00e9"}`, '{"choices":[], "timings":"\u00e9"}'],
    ["first", `{${usageMember},"choices":[],"timings":{}}`, '{"choices":[],"timings":{}}'],
    ["beside null", `{"choices":[],"system_fingerprint":null,${usageMember}}`, undefined],
  ])("where no such event waits, only usage is taken out: %s", (_, data, kept) => {
    const { filter, output } = run(true, [chunkEvent("a"), `data: ${data}\n\n`, doneEvent]);
    expect(output).toBe(chunkEvent("a") + (kept === undefined ? "" : `data: ${kept}\n\n`) + doneEvent);
    expect(filter.usage()).toEqual({ promptTokens: 9, completionTokens: 2, cachedTokens: 0 });
  });

  test("a byte order mark before it changes nothing", () => {
    const { filter, output } = run(true, [`\ufeff${usageEvent}`, chunkEvent("a"), doneEvent]);
    expect(output).toBe(chunkEvent("a") + doneEvent);
    expect(filter.usage()).toEqual(usage);
  });
});

describe("fault tells a whole answer from one that is none", () => {
  const end = (finish_reason: unknown) => `data: ${JSON.stringify({ choices: [{ delta: {}, finish_reason }] })}\n\n`;
  test.each([
    ["whole", chunkEvent("a") + end("stop") + usageEvent + doneEvent, undefined],
    ["ended by its reason alone", chunkEvent("a") + end("length"), undefined],
    ["ended by its reason, with usage behind it", chunkEvent("a") + end("length") + usageEvent, undefined],
    ["in an unknown form", "data: hello\n\ndata: world\n\n", undefined],
    ...["transcript.text.done", "speech.audio.done", "image_generation.completed", "image_edit.completed"].map(
      (type): [string, string, undefined] => [
        `ended by ${type}`,
        `data: {"type":"x.delta"}\n\ndata: {"type":"${type}"}\n\n`,
        undefined,
      ],
    ),
    ["ended by an event too long to be read", `${chunkEvent("a")}data: "${"x".repeat(1_048_577)}"\n\n`, undefined],
    [
      "cut inside such an event, behind another one",
      `data: "${"x".repeat(1_048_577)}"\n\ndata: "${"x".repeat(1_048_577)}`,
      { kind: "cut", status: 502 },
    ],
    ["cut inside such an event", `${chunkEvent("a")}data: "${"x".repeat(1_048_577)}`, { kind: "cut", status: 502 }],
    ["ended without any text", end("stop") + doneEvent, undefined],
    ["without an end", chunkEvent("a"), { kind: "cut", status: 502 }],
    ["cut inside an event", `${chunkEvent("a")}data: {"ch`, { kind: "cut", status: 502 }],
    ["of comments alone", ": ping\n\n: ping\n\n", { kind: "empty", status: 502 }],
    ["of nothing", "", { kind: "empty", status: 502 }],
    [
      "an error with a status in words",
      `data: {"error":{"code":"503"}}\n\n${doneEvent}`,
      { kind: "error", status: 503 },
    ],
    ["an error in another order", `data: { "object" : "error", "code": 400 }\n\n`, { kind: "error", status: 400 }],
    [
      "an error with no status",
      `${chunkEvent("a")}data: {"error":"broken"}\n\n${doneEvent}`,
      { kind: "error", status: 500 },
    ],
    [
      "an error event with data that is no JSON",
      `${chunkEvent("a")}event: error\ndata: oops\n\n`,
      { kind: "error", status: 502 },
    ],
    [
      "aborted with a status",
      `${chunkEvent("a")}data: {"text":"a","meta_info":{"prompt_tokens":1,"finish_reason":{"type":"abort","status_code":503}}}\n\n${doneEvent}`,
      { kind: "error", status: 503 },
    ],
    [
      "with a text about errors",
      chunkEvent('"error"') + chunkEvent('"finish_reason":"abort"') + end("stop") + doneEvent,
      undefined,
    ],
  ])("%s", (_, stream, expected) => {
    for (const strip of [false, true]) {
      expect(run(strip, [stream]).filter.fault()).toEqual(expected);
      expect(run(strip, [...stream]).filter.fault()).toEqual(expected);
    }
  });
});

describe("readAnswerHead reads no further than it must", () => {
  test.each([
    ["a comment", ": pi", undefined],
    ["a chunk", chunkEvent("a"), undefined],
    ["a chunk of which enough has come", 'data: {"id":"chatcmpl-0123456789abcdef0123"', undefined],
    ["a chunk whose first key is that of no error", 'data: {"id', undefined],
    ["a chunk of which too little has come", 'data: {"', "more"],
    ["an object of which too little has come", '{"object":"e', "more"],
    ["an error of which not all has come", `data: {"error":{"message":"${"x".repeat(100)}`, "more"],
    ["a body", '{"id":"chatcmpl-0123456789abcdef0123456"', undefined],
    ["a body with an error of null", '{"id":"r","object":"response","error":null', undefined],
    ["no JSON", "binary \u0000", undefined],
    ["a blank line first", `\n\ndata: {"error":{"code":500}}\n\n`, { kind: "error", status: 500 }],
  ])("%s", (_, head, expected) => {
    expect(readAnswerHead(Buffer.from(head), false)).toEqual(expected);
  });

  test.each([
    ["what is short ends as itself", "{}", undefined],
    ["nothing is an empty answer", "", { kind: "empty", status: 502 }],
    ["white space as well", " \n", { kind: "empty", status: 502 }],
    ["an error is read at the end", '{"error":{"type":"rate_limit_error"}}', { kind: "error", status: 429 }],
  ])("%s", (_, body, expected) => {
    expect(readAnswerHead(Buffer.from(body), true)).toEqual(expected);
  });
});
