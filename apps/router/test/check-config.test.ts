import { dirname, resolve } from "node:path";
import { shippedModelFolder } from "@espalier/tokenizer";
import { beforeEach, expect, test, vi } from "vitest";
import { registerCheckConfig } from "../src/commands/check-config.ts";
import { runCommand } from "./run-command.ts";
import { temporaryFile } from "./temporary.ts";

const engine = ["--engine", "http://a:1"];
// What this machine has in the usual places is not the test's.
beforeEach(() => {
  vi.stubEnv("ESPALIER_CONFIG", "");
  return () => vi.unstubAllEnvs();
});

const notesOf = async (...args: readonly string[]) =>
  (await runCommand(registerCheckConfig, "check-config", ...engine, ...args)).stderr;

/** A path that does not exist passed, also before a unit's start, and so did KV events that no prompt is compared with. */
test("fails for a tokenizer that is not there, with its path as it is found from here", async () => {
  const failed = async (path: string) =>
    (await runCommand(registerCheckConfig, "check-config", ...engine, "--tokenizer", path)).error;
  expect(await failed("nowhere/at/all")).toMatchObject({
    code: "config_invalid",
    message: expect.stringContaining(`tokenizers[0].path: ${resolve("nowhere/at/all")} does not exist`),
  });
  const folder = dirname(temporaryFile("config.json", "{}"));
  expect(await failed(folder)).toMatchObject({ message: expect.stringContaining(`${folder} has no tokenizer.json`) });
  expect(await notesOf("--tokenizer", shippedModelFolder())).toBe("");
});

test("says that KV events are of no use without a tokenizer, where they are asked for", async () => {
  const listen = ["--kv-events-listen", "tcp://127.0.0.1:5557"];
  expect(await notesOf(...listen)).toContain("no tokenizer is configured");
  expect(await notesOf(...listen, "--tokenizer", shippedModelFolder())).toBe("");
  expect(await notesOf()).toBe("");
});

/** `--admin-key` was suggested in the place of SMG's key of engines: it would have been the key of all operators. */
test("says how the key of engines comes into the configuration, without the key", async () => {
  const { stderr } = await runCommand(registerCheckConfig, "check-config", ...engine, "--api-key", "sk-secret");
  expect(stderr).toContain("espalier migrate --from sglang-router");
  expect(stderr).not.toContain("sk-secret");
  expect(stderr).not.toContain("admin-key");
});

const changed = async (...args: readonly string[]): Promise<unknown> => {
  const { stdout } = await runCommand(registerCheckConfig, "check-config", "--changed", "--json", ...args);
  return JSON.parse(stdout);
};

test("--changed prints nothing of a configuration without settings", async () => {
  expect(await changed()).toEqual({});
  expect((await runCommand(registerCheckConfig, "check-config", "--changed")).stdout).toBe("{}\n");
});

test("--changed prints what differs: settings, durations and sizes as text, and of engines what they do not have by default", async () => {
  const file = temporaryFile(
    "changed.yaml",
    [
      "engines:",
      "  - http://a:1",
      "  - { url: http://b:1, weight: 2, role: both }",
      "listen: { port: 8080, host: 0.0.0.0 }",
      "drain: { delay: 5000ms, grace: 2m }",
      "policy: cache_aware",
      "admin: { key: secret-of-operators }",
    ].join("\n"),
  );
  expect(await changed("--config", file)).toEqual({
    engines: [{ url: "http://a:1" }, { url: "http://b:1", weight: 2 }],
    listen: { host: "0.0.0.0" },
    drain: { grace: "2m" },
    policy: { name: "cache_aware" },
    admin: { key: expect.not.stringContaining("secret") },
  });
  const { stdout } = await runCommand(registerCheckConfig, "check-config", "--changed", "--config", file);
  expect(stdout).toContain("drain:\n  grace: 2m\n");
  expect(stdout).not.toContain("delay");
});

test("says which file it read where no flag named it", async () => {
  const file = temporaryFile("espalier.yaml", "engines: [http://a:1]");
  vi.stubEnv("ESPALIER_CONFIG", file);
  expect((await runCommand(registerCheckConfig, "check-config")).stderr).toBe(`read ${file}\n`);
});
