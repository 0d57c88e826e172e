import { expect, test } from "vitest";
import { helpText, parseCommandLine } from "../src/command-line.ts";

test("the help has a line for each flag, with what it takes, what it is, and its default", () => {
  const lines = helpText(200).split("\n");
  expect(lines).toContain("  --engines N                 engines in this process, each on its own port (1)");
  expect(lines).toContain("  --model NAME                served model name; repeatable (sim-model)");
  expect(lines).toContain("  --kv-events-replay on|off   answer replay requests (on)");
  expect(lines).toContain("  --kv-events-topic TOPIC     first frame of every message (empty)");
  expect(lines).toContain("  --p2p-queue N               pulls queued at an engine; others are rejected (1024)");
  expect(lines).toContain("                              bandwidth between engines (1.25e10)");
  expect(lines).toContain("  --json                      print one JSON object with the URLs");
  expect(lines).toContain("  -h, --help                  print this");
});

test("the help fits in the width of a terminal, except words and flags that are longer", () => {
  for (const line of helpText(72).split("\n")) {
    if (line.length > 72) expect(line).toMatch(/^ {2}\S+( \S+)?$|^Simulated/);
  }
});

test.each<[string, string]>([
  [
    "--kv-transfer quic",
    '--kv-transfer is one of nixl, sglang-bootstrap, mooncake, shared-storage, trtllm, p2p-nccl, not "quic"',
  ],
  ["--kv-transfer nixl --kv-transfer-failure wait", '--kv-transfer-failure is fail or recompute, not "wait"'],
  ["--kv-events auto --kv-events-replay yes", '--kv-events-replay is on or off, not "yes"'],
  ["--speed fast", '--speed is a number, not "fast"'],
  ["--kv-pool-events auto", "--kv-pool-events needs --kv-transfer"],
  ["--kv-transfer shared-storage --kv-pool-events-port 1", "--kv-pool-events-port needs --kv-pool-events"],
])("%s is refused", (flags, message) => {
  expect(() => parseCommandLine(flags.split(" "))).toThrow(message);
});

test("flags for the program itself set no option", () => {
  const own = { showHelp: true, json: true, exitWithStdin: true };
  expect(parseCommandLine(["-h", "--json", "--exit-with-stdin"])).toEqual({ ...own, options: { parameters: {} } });
  expect(
    parseCommandLine(["--model", "a", "--model", "b", "--kv-events", "auto", "--kv-events-replay", "off"]),
  ).toEqual({
    ...{ showHelp: false, json: false, exitWithStdin: false },
    options: { parameters: {}, models: ["a", "b"], kvEvents: { dialect: "auto", replay: false } },
  });
});
