import { expect, test } from "vitest";
import { loggerOptions } from "../src/commands/serve.ts";

const terminal = { isTTY: true, hasColors: () => true };
const plainTerminal = { isTTY: true, hasColors: () => false };

test.each([
  ["auto", terminal, { format: "pretty", coloured: true }],
  ["auto", plainTerminal, { format: "pretty", coloured: false }],
  ["auto", {}, { format: "json", coloured: false }],
  ["json", terminal, { format: "json", coloured: false }],
  ["pretty", terminal, { format: "pretty", coloured: true }],
  ["pretty", {}, { format: "pretty", coloured: false }],
] as const)("%s at %j", (format, output, expected) => {
  expect(loggerOptions({ level: "warn", format }, output)).toEqual({ level: "warn", ...expected });
});
