import { expect, test } from "vitest";
import { registerDemo } from "../src/commands/demo.ts";
import { registerEngines } from "../src/commands/engines.ts";
import { registerReplay } from "../src/commands/replay.ts";
import { registerSimulate } from "../src/commands/simulate.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";

/** Whatever says what was wrong: what the action threw, or what commander wrote. */
async function complaint(register: Parameters<typeof runCommand>[0], ...written: readonly string[]): Promise<string> {
  const { error, stderr } = await runCommand(register, ...written);
  expect(isUsageRefusal(error) || (error as Error).name === "UsageError", String(error)).toBe(true);
  return `${stderr}${(error as Error).message}`;
}

test.each([
  ["a policy", ["rag", "--policy", "leastwork"], "least_work"],
  ["a scenario", ["evitc"], "evict"],
  ["what stands in place of a scenario", ["wrost-case"], "worst-case"],
  ["a scenario of worst-case", ["worst-case", "--only", "burst"], "bursts"],
  ["a variant", ["sglang-prefix-groups", "--variant", "v04"], "v0.4"],
  ["what is shared", ["rag", "--sharing", "mehs"], "mesh"],
  ["a format", ["--trace", "x", "--format", "moncake"], "mooncake"],
])("simulate: %s that was mistyped is named", async (_, written, meant) => {
  expect(await complaint(registerSimulate, "simulate", ...written)).toContain(`did you mean ${meant}?`);
});

test.each([
  [["--policy", "rond_robin"], "round_robin"],
  [["--preset", "h100-32b-tp"], "h100-32b-tp2"],
  [["--sharing", "nonne"], "none"],
])("demo: %s", async (written, meant) => {
  const said = await complaint(registerDemo, "demo", ...written);
  expect(said).toContain(`did you mean ${meant}?`);
  expect(said).toContain("Allowed choices are");
});

test("replay: a policy", async () => {
  const said = await complaint(registerReplay, "replay", "--trace", "x", "--policy", "cache-aware");
  expect(said).toContain("did you mean cache_aware?");
});

test("what is like nothing gets no suggestion", async () => {
  expect(await complaint(registerReplay, "replay", "--trace", "x", "--policy", "zzzzzzzz")).not.toContain(
    "did you mean",
  );
});

test("engines: a command that was mistyped is no engine of the list", async () => {
  expect(await complaint(registerEngines, "engines", "darin", "a:1")).toContain("did you mean drain?");
});
