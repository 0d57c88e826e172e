import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { engines } from "./files.ts";
import { run, start } from "./program.ts";

test("a router inside another program answers, and ends in order", async () => {
  const urls = await engines({ engines: 2, speed: 1_000 });
  const program = start(urls, { script: "examples/embedding/router.mjs" });
  const [, url = ""] = await program.until(/clients: (\S+)/);
  const ask = () =>
    fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", prompt: "hello", max_tokens: 2 }),
    });
  await waitFor(async () => (await ask()).status === 200, { what: "an answer" });
  program.kill("SIGTERM");
  expect(await program.ended).toMatchObject({ code: 0, stderr: "" });
});

test.each([
  [["policy.mjs"], "least_work: warm (least_work)\n"],
  [["policy.mjs", "cache_aware"], "cache_aware: warm (prefix_match)\n"],
  [["policy.mjs", "least_connections"], "least_connections: cold and idle "],
  [["prefixes.mjs"], "server 1: 160 tokens announced, 0 sent there, of 200\nserver 2: 64 tokens announced, 0 sent"],
])("%s says %j", async ([script, ...args], expected) => {
  const { code, stdout, stderr } = await run(args, { script: `examples/embedding/${script}` });
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout.startsWith(expected)).toBe(true);
});
