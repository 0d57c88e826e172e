import { existsSync, readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { maxTraceRequests, readTrace } from "@espalier/simulator";
import { expect, test } from "vitest";
import { registerSimulate } from "../../src/commands/simulate.ts";
import { runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";

const simulate = (...written: readonly string[]) => runCommand(registerSimulate, "simulate", ...written);

test("what is written is a trace that replay reads, with what the scenario's clients share", async () => {
  const path = temporaryFile("trace.jsonl", "");
  const { stdout, error } = await simulate(
    ...["one-prompt", "--variant", "120-per-s-32-engines", "--requests", "60", "--write-trace", path],
  );
  expect(error).toBeUndefined();
  expect(stdout).toContain(
    `60 requests in ${path}; espalier replay --trace ${path} --engines 32 --preset h100-32b-tp2`,
  );
  const rows = await readTrace(path);
  expect(rows).toHaveLength(60);
  expect(new Set(rows.map(({ session }) => session)).size).toBe(60);
  expect(new Set(rows.map(({ blockIds }) => blockIds?.[499])).size).toBe(1);
  expect(new Set(rows.map(({ blockIds }) => blockIds?.[500])).size).toBe(60);
  expect(rows.at(-1)!.arrivalMs / 1_000).toBeGreaterThan(0.3);
  expect(rows.at(-1)!.arrivalMs / 1_000).toBeLessThan(0.8);
});

test("a scenario with an invented trace writes that, gzipped if the name says so", async () => {
  const plain = temporaryFile("trace.jsonl", "");
  const zipped = temporaryFile("trace.jsonl.gz", "");
  for (const path of [plain, zipped]) {
    const { stdout, error } = await simulate("agents-traces", "--write-trace", path);
    expect(error).toBeUndefined();
    expect(stdout).toContain(`40 sessions in ${path}; espalier replay --trace ${path} --format claude-code`);
  }
  expect(gunzipSync(readFileSync(zipped)).equals(readFileSync(plain))).toBe(true);
  expect((await readTrace(zipped, { limit: 5 }))[4]).toMatchObject({ session: "synthetic_0001", turn: 4 });
});

test.each([
  { written: ["agents-traces", "--requests", "5"], says: "writes its invented sessions, all of them" },
  { written: ["a10g-8"], says: "a10g-8 is a closed loop" },
  { written: ["mooncake-conversation"], says: "replays a trace, which is one already" },
  { written: ["one-prompt", "--variant", "none"], says: '--variant: "none" of one-prompt' },
  { written: ["smg-24"], says: "did you mean smg-240?" },
  { written: ["one-prompt", "--duration", "12h"], says: `requests are more than ${maxTraceRequests}` },
])("$written: $says, and nothing is written", async ({ written, says }) => {
  const path = `${temporaryFile("before.jsonl", "")}.new`;
  const { error } = await simulate(...written, "--write-trace", path);
  expect(error).toMatchObject({ name: "UsageError", message: expect.stringContaining(says) });
  expect(existsSync(path)).toBe(false);
});
