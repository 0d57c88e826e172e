import { shippedModelFolder } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { registerCheckConfig } from "../src/commands/check-config.ts";
import { runCommand } from "./run-command.ts";

const engine = ["--engine", "http://a:1"];
const notesOf = async (...args: readonly string[]) =>
  (await runCommand(registerCheckConfig, "check-config", ...engine, ...args)).stderr;

/** A path that does not exist passed without a word, and so did KV events that no prompt is compared with. */
test("says which tokenizer is not there", async () => {
  expect(await notesOf("--tokenizer", "/nowhere/at/all")).toContain(
    "tokenizers[0].path: /nowhere/at/all has no tokenizer.json",
  );
  expect(await notesOf("--tokenizer", shippedModelFolder())).toBe("");
});

test("says that KV events are of no use without a tokenizer, where they are asked for", async () => {
  const listen = ["--kv-events-listen", "tcp://127.0.0.1:5557"];
  expect(await notesOf(...listen)).toContain("there is no tokenizer");
  expect(await notesOf(...listen, "--tokenizer", shippedModelFolder())).toBe("");
  expect(await notesOf()).toBe("");
});

/** `--admin-key` was suggested in the place of SMG's key of engines: it would have been the key of all operators. */
test("says where the key of engines belongs, without the key", async () => {
  const { error } = await runCommand(registerCheckConfig, "check-config", ...engine, "--api-key", "sk-secret");
  expect(String(error)).toContain("engine-api-key");
  expect(String(error)).not.toContain("sk-secret");
  expect(String(error)).not.toContain("admin-key");
});
