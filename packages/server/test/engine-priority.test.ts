import { classSpanMs } from "@espalier/admission";
import { type AdmissionConfig, loadConfig } from "@espalier/config";
import { expect, test } from "vitest";
import { enginePriority, type PrioritizedRequest } from "../src/routing/service-class.ts";

const arrivedWallMs = Date.UTC(2031, 4, 5);
const usual: AdmissionConfig = loadConfig({}).admission;
const request: PrioritizedRequest = {
  endpoint: { family: "openai", kind: "generate" },
  className: undefined,
  written: undefined,
  arrivedWallMs,
};
const told = (config: Partial<AdmissionConfig>, more: Partial<PrioritizedRequest> = {}, workMs = 0) =>
  enginePriority({ ...usual, ...config }, { ...request, ...more })?.(workMs);

test("engines are told nothing unless they go by it, and then nothing where silence says the same", () => {
  expect(told({})).toBeUndefined();
  expect(told({ engineOrder: "shortest" }, { className: "batch" })).toBeUndefined();
  expect(told({ enginePriority: "lower-first" })).toBeUndefined();
  expect(told({ enginePriority: "lower-first" }, { written: 0 })).toBeUndefined();
});

test.each([
  ["lower-first", "interactive", -1],
  ["lower-first", "batch", 1],
  ["lower-first", "background", 2],
  ["higher-first", "interactive", 1],
  ["higher-first", "background", -2],
] as const)("with %s the class %s is %d, whatever the prompt asks for", (direction, className, expected) => {
  expect(told({ enginePriority: direction }, { className }, 0)).toBe(expected);
  expect(told({ enginePriority: direction }, { className }, 5_000)).toBe(expected);
});

test("what the client wrote is replaced, also by the default class", () => {
  expect(told({ enginePriority: "lower-first" }, { written: 7 })).toBe(0);
});

test("with an order of their own, places in it are told for every class, the default one too", () => {
  const shortest = { enginePriority: "lower-first", engineOrder: "shortest" } as const;
  expect(told(shortest)).toBe(arrivedWallMs);
  expect(told(shortest, { className: "default" }, 50)).toBe(arrivedWallMs + 1_000);
  expect(told(shortest, { className: "batch" })).toBe(arrivedWallMs + classSpanMs);
  expect(told(shortest, { className: "interactive" })).toBe(arrivedWallMs - classSpanMs);
});

test("what has no such field is left alone", () => {
  const shortest = { enginePriority: "lower-first", engineOrder: "shortest" } as const;
  expect(told(shortest, { endpoint: { family: "anthropic", kind: "generate" } })).toBeUndefined();
  expect(told(shortest, { endpoint: { family: "openai", kind: "embed" } })).toBeUndefined();
});
