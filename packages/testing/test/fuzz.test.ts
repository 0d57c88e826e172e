import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { fuzzTarget, readFuzzRequest } from "../src/fuzz-decoder.ts";
import { type FuzzTarget, fuzzDecoder, fuzzInFile, maxCaseBytes, mutateBytes } from "../src/index.ts";

const seeds = [new TextEncoder().encode('{"a":1}'), Uint8Array.of(1, 2, 3, 250)];
const run = { seed: 3, maxCases: 500, maxMs: Number.POSITIVE_INFINITY };

/** A decoder that fails when it reads a certain byte. */
const failing = (error: unknown): FuzzTarget => ({
  name: "a decoder",
  seeds,
  read: (bytes) => {
    if (bytes.includes(0xff)) throw error;
  },
});

test("changed bytes are the same for a seed, others for another, and never longer than the bound", () => {
  const texts = (seed: number): string[] => {
    const random = createSeededRandom(seed);
    return Array.from({ length: 300 }, () => Buffer.from(mutateBytes(random, seeds)).toString("hex"));
  };
  expect(texts(1)).toEqual(texts(1));
  expect(texts(1)).not.toEqual(texts(2));
  expect(new Set(texts(1)).size).toBeGreaterThan(200);
  const random = createSeededRandom(5);
  const long = [new Uint8Array(2 * maxCaseBytes)];
  const lengths = Array.from({ length: 300 }, () => mutateBytes(random, long).length);
  expect(Math.max(...lengths)).toBe(maxCaseBytes);
});

test("seeds stay as they are, also where a case is of no length", () => {
  const random = createSeededRandom(6);
  const own = [Uint8Array.of(7, 8), new Uint8Array(0)];
  for (let round = 0; round < 2_000; round++) mutateBytes(random, own);
  expect(own).toEqual([Uint8Array.of(7, 8), new Uint8Array(0)]);
});

test("many changes of a JSON text leave it JSON, with odd values in it", () => {
  const random = createSeededRandom(8);
  const chat = [new TextEncoder().encode('{"model":"m","messages":[{"role":"user","content":"x"}]}')];
  const texts = Array.from({ length: 600 }, () => Buffer.from(mutateBytes(random, chat)).toString());
  const isJson = (text: string): boolean => {
    try {
      return typeof JSON.parse(text) === "object";
    } catch {
      return false;
    }
  };
  expect(texts.filter(isJson).length).toBeGreaterThan(200);
  expect(texts.some((text) => text.includes("__proto__"))).toBe(true);
});

test("documented errors are counted", async () => {
  const report = await fuzzDecoder(failing(new RangeError("no such byte")), run);
  expect(report).toMatchObject({ name: "a decoder", seed: 3, cases: 500 });
  expect(report.refused).toBeGreaterThan(0);
  const refuses = (thrown: unknown): boolean => thrown === "no";
  expect((await fuzzDecoder({ ...failing("no"), refuses }, run)).refused).toBe(report.refused);
});

test("anything else is a finding, with the command that runs it again", async () => {
  for (const error of [new TypeError("oh"), new RangeError("Maximum call stack size exceeded"), "text"]) {
    const first = fuzzDecoder(failing(error), run);
    await expect(first).rejects.toThrow(/run it again: npm run test:fuzz -- --decoder "a decoder" --seed 3 --case \d+/);
    const found = await first.catch((thrown: Error) => Number(/--case (\d+)/.exec(thrown.message)![1]));
    await expect(fuzzDecoder(failing(error), { ...run, maxCases: 1, firstCase: found as number })).rejects.toThrow();
  }
});

test("a rejected promise is a finding too", async () => {
  const target = { ...failing(""), read: () => Promise.reject(new TypeError("later")) };
  await expect(fuzzDecoder(target, run)).rejects.toThrow(/a decoder threw TypeError: later/);
});

test("a run ends when its time is up", async () => {
  expect((await fuzzDecoder(failing(new RangeError("x")), { ...run, maxMs: 0 })).cases).toBe(0);
});

test("a request shares a file's time, may name one decoder and one case, and is told what came of it", async () => {
  const reportFile = join(mkdtempSync(join(tmpdir(), "espalier-fuzz-")), "report.jsonl");
  const request = readFuzzRequest(JSON.stringify({ seed: 9, fileMs: 20, reportFile }))!;
  const target = failing(new RangeError("x"));
  expect(await fuzzTarget(target, 2, request)).toBeGreaterThan(0);
  expect(await fuzzTarget(target, 2, { ...request, decoder: "another" })).toBe(0);
  expect(await fuzzTarget(target, 2, { ...request, decoder: "a decoder", case: 7 })).toBe(1);
  await expect(fuzzTarget(failing("no"), 1, { ...request, fileMs: 10_000 })).rejects.toThrow();
  const lines = readFileSync(reportFile, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.map((line) => Object.keys(line)[0])).toEqual(["began", "name", "began", "name", "began", "name"]);
  expect(lines.at(-1).finding).toMatch(/^a decoder threw no\n/);
  expect(readFuzzRequest(undefined)).toBeUndefined();
  expect(await fuzzTarget(target, 2, undefined)).toBeGreaterThan(0);
});

test("a file declares a test for each of its decoders, by its name", async () => {
  const declared: { readonly name: string; readonly run: () => Promise<void> }[] = [];
  const good = { ...failing("no"), read: () => {} };
  fuzzInFile((name, run) => declared.push({ name, run }), "whatever comes is read", [
    good,
    { ...good, name: "another" },
  ]);
  expect(declared.map(({ name }) => name)).toEqual([
    "a decoder: whatever comes is read",
    "another: whatever comes is read",
  ]);
  await Promise.all(declared.map(({ run }) => run()));
});
