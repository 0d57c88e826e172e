import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createSseUsageFilter, type Usage } from "../src/index.ts";
import { type CapturedReport, captured, cutAt } from "./helpers.ts";

interface Outcome {
  readonly output: Buffer;
  readonly usage: Usage | undefined;
  readonly sawDone: boolean;
  readonly endedProperly: boolean;
  readonly tokensSeen: number;
}

function run(strip: boolean, chunks: readonly Buffer[]): Outcome {
  const filter = createSseUsageFilter({ strip });
  const out: Buffer[] = [];
  for (const chunk of chunks) {
    const before = Buffer.from(chunk);
    const passed = filter.push(chunk);
    if (!strip) expect(passed).toBe(chunk);
    if (passed) out.push(passed);
    expect(chunk.equals(before)).toBe(true);
  }
  const rest = filter.end();
  if (rest) out.push(rest);
  return {
    output: Buffer.concat(out),
    usage: filter.usage(),
    sawDone: filter.sawDone(),
    endedProperly: filter.endedProperly(),
    tokensSeen: filter.tokensSeen(),
  };
}

const report = fc
  .tuple(fc.nat(9_999), fc.nat(9_999), fc.option(fc.nat(9_999)))
  .map(([prompt_tokens, completion_tokens, cached]) => ({
    prompt_tokens,
    completion_tokens,
    ...(cached === null ? {} : { prompt_tokens_details: { cached_tokens: cached } }),
  }));
const usageOnly = report.map((usage) => ({ kept: false, data: JSON.stringify({ id: "c", choices: [], usage }) }));
const ordinary = fc
  .tuple(fc.string({ unit: "binary" }), fc.constantFrom(undefined, null))
  .map(([content, usage]) => ({ kept: true, data: JSON.stringify({ choices: [{ delta: { content } }], usage }) }));
const running = report.map((usage) => ({ kept: true, data: JSON.stringify({ choices: [{ delta: {} }], usage }) }));
const done = fc.constant({ kept: true, data: "[DONE]" });
const lineEnd = fc.constantFrom("\n", "\r\n", "\r");
const event = fc
  .tuple(
    fc.oneof({ weight: 4, arbitrary: ordinary }, usageOnly, running, done),
    fc.constantFrom("", ": ping", "event: message", "id: 7"),
    fc.constantFrom("data: ", "data:"),
    lineEnd,
  )
  .map(([{ kept, data }, above, field, end]) => ({ kept, text: `${above}${above && end}${field}${data}${end}${end}` }));
const ending = lineEnd.map((end) => ({
  kept: true,
  text: `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}${end}${end}`,
}));
const stream = fc
  .array(
    fc.oneof(
      { weight: 6, arbitrary: event },
      { weight: 1, arbitrary: ending },
      fc.constantFrom("\n", ": hello\n\n").map((text) => ({ kept: true, text })),
    ),
  )
  .map((events) => ({
    all: Buffer.from(events.map(({ text }) => text).join("")),
    kept: events.filter(({ kept }) => kept).map(({ text }) => text),
  }));
const cuts = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 12 });

test("however a stream is cut, the output, the usage and the end are those of the stream in one piece", () => {
  fc.assert(
    fc.property(stream, cuts, fc.boolean(), ({ all, kept }, fractions, strip) => {
      const whole = run(strip, [all]);
      expect(whole.output.toString()).toBe(strip ? kept.join("") : all.toString());
      expect(run(strip, cutAt(all, fractions))).toEqual(whole);
    }),
    { numRuns: randomRuns(500) },
  );
});

test("byte by byte as well", () => {
  fc.assert(
    fc.property(stream, fc.boolean(), ({ all }, strip) => {
      const bytes = Array.from(all, (_, at) => all.subarray(at, at + 1));
      expect(run(strip, bytes)).toEqual(run(strip, [all]));
    }),
    { numRuns: randomRuns(50) },
  );
});

test("arbitrary bytes with the marks of events among them pass in order, whatever the filter makes of them", () => {
  const marks = fc
    .constantFrom(
      "\n",
      "\r\n",
      "\n\n",
      "\r",
      "data: ",
      "event: error",
      "[DONE]",
      '"usage":{"prompt_tokens":1}',
      '{"choices":[]',
    )
    .map((text) => Buffer.from(text));
  const noise = fc.uint8Array({ maxLength: 8 }).map((bytes) => Buffer.from(bytes));
  fc.assert(
    fc.property(fc.array(fc.oneof(marks, noise)), cuts, (parts, fractions) => {
      const all = Buffer.concat(parts);
      expect(run(false, cutAt(all, fractions)).output.equals(all)).toBe(true);
      const stripped = run(true, cutAt(all, fractions));
      // Events are whole or gone; no bytes of the noise are made up or turned round.
      expect(stripped.output.length).toBeLessThanOrEqual(all.length);
      expect(stripped).toEqual(run(true, [all]));
    }),
    { numRuns: randomRuns(500) },
  );
});

describe.skipIf(captured.length === 0)("captured streams", () => {
  const streams = captured.filter((exchange) => exchange.sse !== undefined);
  const lastEvent = /\}\n\n(?=data: \[DONE\])/;
  const usageOnlyEvent = /^data: \{[^\n]*"choices":\[\],"usage":\{[^\n]*\}\n\n/m;

  test("there are complete and aborted ones of all three engines", () => {
    const complete = streams.filter(({ sse }) => sse?.endsWith("data: [DONE]\n\n"));
    expect(new Set(complete.map(({ engine }) => engine)).size).toBe(3);
    expect(complete.length).toBe(9);
    expect(streams.length).toBe(12);
  });

  test.each(streams.map((exchange) => [`${exchange.engine} ${exchange.phase} ${exchange.id}`, exchange.sse ?? ""]))(
    "%s",
    (_, sse) => {
      const all = Buffer.from(sse);
      const complete = sse.endsWith("[DONE]\n\n");
      const last = usageOnlyEvent.exec(sse)?.[0];
      const expected = last && (JSON.parse(last.slice(6)) as { usage: CapturedReport }).usage;
      const untouched = run(false, [all]);
      const stripped = run(true, [all]);

      expect(untouched.output.equals(all)).toBe(true);
      const fingerprint = /,"system_fingerprint":"[^"]+"/.exec(last ?? "")?.[0] ?? "";
      expect(stripped.output.toString()).toBe(sse.replace(usageOnlyEvent, "").replace(lastEvent, `${fingerprint}$&`));
      expect(stripped.output.includes("_tokens")).toBe(false);
      expect(last !== undefined).toBe(complete);
      expect(untouched.sawDone).toBe(complete);
      expect(untouched.endedProperly).toBe(complete);
      expect(untouched.usage).toEqual(
        expected && {
          promptTokens: expected.prompt_tokens,
          completionTokens: expected.completion_tokens,
          cachedTokens: expected.prompt_tokens_details?.cached_tokens,
        },
      );
      // An aborted capture ends inside its last blank line, where its last event is complete but for that.
      expect(untouched.tokensSeen).toBe(sse.match(/^data: \{.*\}$/gm)?.length);
      for (const size of [1, 7, 100, 1_000]) {
        const chunks = cutAt(
          all,
          Array.from({ length: Math.ceil(all.length / size) }, (__, at) => (at * size) / all.length),
        );
        expect(run(false, chunks)).toEqual(untouched);
        expect(run(true, chunks)).toEqual(stripped);
      }
    },
  );
});
