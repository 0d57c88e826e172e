import { expect, test } from "vitest";
import { registerMigrate } from "../../src/commands/migrate.ts";
import { runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";
import { llmdSamples } from "./llm-d-samples.ts";

const run = (...args: readonly string[]) => runCommand(registerMigrate, "migrate", ...args);
const baseline = llmdSamples["the recommended baseline"]!;

test("prints the configuration with what is not the same as comments, and that on standard error too", async () => {
  const file = temporaryFile("epp.yaml", llmdSamples["a scorer of one's own"]!);
  const { stdout, stderr, error } = await run("--from", "llm-d", file);
  expect(error).toBeUndefined();
  expect(stdout).toMatch(
    /^# Translated by `espalier migrate --from llm-d` \(EndpointPickerConfig\)\.\n#\n# Differences:/,
  );
  expect(stdout).toContain("policy:\n  name: epp_weighted\n");
  const note = `${file}:5:3: plugins[1] (custom-scorer): not translated: llm-d's own repository has no such plugin`;
  expect(stderr).toContain(note);
  expect(stdout).toContain(`# - ${note}`);
  for (const line of stderr.trimEnd().split("\n")) expect(stdout).toContain(`# - ${line}\n`);
});

test("--json prints the configuration, and what became of everything", async () => {
  const { stdout } = await run("--from", "llm-d", "--json", temporaryFile("epp.yaml", baseline));
  const { from, configuration, entries } = JSON.parse(stdout);
  expect(from).toBe("llm-d");
  expect(configuration.policy).toMatchObject({ name: "epp_weighted", "no-hit-lru-weight": 2 });
  expect(entries).toContainEqual(
    expect.objectContaining({ outcome: "same", plugin: "queue-scorer", ours: "`policy.queue-weight: 2`" }),
  );
});

test("another router is refused with the names of those that are known", async () => {
  const { error } = await run("--from", "llmd", temporaryFile("epp.yaml", baseline));
  expect(String(error)).toContain('--from: "llmd" is not one of llm-d');
});

test("a file that is not there, and one that cannot be understood", async () => {
  expect(String((await run("--from", "llm-d", "/nowhere/epp.yaml")).error)).toContain(
    "/nowhere/epp.yaml cannot be read",
  );
  const file = temporaryFile("epp.yaml", "kind: EndpointPickerConfig\nplugins: none\n");
  const { error, stdout } = await run("--from", "llm-d", file);
  expect(String(error)).toContain(`plugins: must be a list (${file}:2:1)`);
  expect(stdout).toBe("");
});
