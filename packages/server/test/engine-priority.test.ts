import { classSpanMs } from "@espalier/routing";
import { expect, test } from "vitest";
import { type AdmissionConfig, loadConfig } from "../src/config/index.ts";
import { enginePriority, type PrioritizedRequest } from "../src/routing/service-class.ts";

const arrivedWallMs = Date.UTC(2031, 4, 5);
const usual: AdmissionConfig = loadConfig({}).admission;
const request: PrioritizedRequest = {
  endpoint: { family: "openai", kind: "generate" },
  className: undefined,
  written: undefined,
  arrivedWallMs,
};
const priorityOf = (config: Partial<AdmissionConfig>, more: Partial<PrioritizedRequest> = {}, workMs = 0) =>
  enginePriority({ ...usual, ...config }, { ...request, ...more })?.(workMs);

test("engines are told nothing unless they go by it, and then nothing where silence says the same", () => {
  expect(priorityOf({})).toBeUndefined();
  expect(priorityOf({ engineOrder: "shortest" }, { className: "batch" })).toBeUndefined();
  expect(priorityOf({ enginePriority: "lower-first" })).toBeUndefined();
  expect(priorityOf({ enginePriority: "lower-first" }, { written: 0 })).toBeUndefined();
});

test.each([
  ["lower-first", "interactive", -1],
  ["lower-first", "batch", 1],
  ["lower-first", "background", 2],
  ["higher-first", "interactive", 1],
  ["higher-first", "background", -2],
] as const)("with %s the class %s is %d, whatever the prompt asks for", (direction, className, expected) => {
  expect(priorityOf({ enginePriority: direction }, { className }, 0)).toBe(expected);
  expect(priorityOf({ enginePriority: direction }, { className }, 5_000)).toBe(expected);
});

test("what the client wrote is replaced, also by the default class", () => {
  expect(priorityOf({ enginePriority: "lower-first" }, { written: 7 })).toBe(0);
});

test("with an order of their own, places in it are told for every class, the default one too", () => {
  const shortest = { enginePriority: "lower-first", engineOrder: "shortest" } as const;
  expect(priorityOf(shortest)).toBe(arrivedWallMs);
  expect(priorityOf(shortest, { className: "default" }, 50)).toBe(arrivedWallMs + 1_000);
  expect(priorityOf(shortest, { className: "batch" })).toBe(arrivedWallMs + classSpanMs);
  expect(priorityOf(shortest, { className: "interactive" })).toBe(arrivedWallMs - classSpanMs);
});

test("what has no such field is left alone", () => {
  const shortest = { enginePriority: "lower-first", engineOrder: "shortest" } as const;
  expect(priorityOf(shortest, { endpoint: { family: "anthropic", kind: "generate" } })).toBeUndefined();
  expect(priorityOf(shortest, { endpoint: { family: "openai", kind: "embed" } })).toBeUndefined();
});
