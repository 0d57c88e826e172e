import { expect, test } from "vitest";
import { engines, temporaryFile } from "./files.ts";
import { run } from "./program.ts";
import { serveWithFeeds } from "./serving.ts";

test("a served request goes where it was explained to go, and why is said", async () => {
  const urls = await engines({ engines: 2, speed: 100 });
  const router = await serveWithFeeds(urls, 0, "--policy", "consistent_hashing");
  const body = JSON.stringify({ model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 2 });
  const file = temporaryFile("request.json", body);
  const asked = ["explain", "--admin", router.adminUrl, "--header", "x-session-id: seven"];
  const [table, json, nowhere, wrong] = await Promise.all([
    run([...asked, "--file", file]),
    run([...asked, "--file", file, "--json"]),
    run(["explain", "--admin", "http://127.0.0.1:1", "--file", file]),
    run([
      ...asked,
      "--file",
      temporaryFile("wrong.json", '{"model":"huge","messages":[{"role":"user","content":"x"}]}'),
    ]),
  ]);
  const report = JSON.parse(json.stdout) as { readonly choice: { readonly key: string } };
  expect([table.code, table.stderr, json.code]).toEqual([0, "", 0]);
  expect(table.stdout).toMatch(
    new RegExp(
      `^choice {4}${report.choice.key}: hash\\nrequest {3}chat, model tiny, session seven \\(header x-session-id\\)\\n`,
    ),
  );
  expect(table.stdout).toMatch(new RegExp(`^-> +${report.choice.key} +100 %`, "m"));
  const served = await fetch(`${router.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-session-id": "seven" },
    body,
  });
  expect(served.headers.get("x-espalier-engine")).toBe(report.choice.key);
  expect([nowhere.code, nowhere.stdout]).toEqual([1, ""]);
  expect(nowhere.stderr).toContain("set --admin to its address");
  expect([wrong.code, wrong.stdout]).toEqual([1, ""]);
  expect(wrong.stderr).toContain("model_not_found");
});
