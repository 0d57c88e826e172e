import { expect, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { run } from "./program.ts";

const file = () =>
  temporaryFile(
    "espalier.yaml",
    `listen:
  host: 127.0.0.1
  port: 8001
admin:
  port: 9001
  key: \${ADMIN_KEY}
api-keys:
  - name: team
    key: key-of-the-team
engines:
  - http://127.0.0.1:8000
  - url: http://127.0.0.1:8010
    weight: 2
policy: consistent_hashing
drain:
  grace: 90s
`,
  );

const secrets = { ADMIN_KEY: "key-of-the-operators" };

test("the whole configuration, as YAML that is a configuration again, with secrets masked", async () => {
  const path = file();
  const { code, stdout, stderr } = await run(["check-config", "-c", path], { env: secrets });
  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout).toContain("policy:\n  name: consistent_hashing\n");
  expect(stdout).toContain("  grace: 90s\n");
  expect(stdout).toContain("max-body-bytes: 32MiB");
  expect(stdout).not.toMatch(/key-of-the/);
  const complete = stdout.replaceAll('"***"', "a-key-in-its-place");
  expect(complete).not.toBe(stdout);
  const again = await run(["check-config", "-c", temporaryFile("again.yaml", complete)]);
  expect(again.stderr).toBe("");
  expect(again.stdout).toBe(stdout);
});

test("as JSON, alone on standard output", async () => {
  const { code, stdout } = await run(["check-config", "--json", "-c", file()], { env: secrets });
  expect(code).toBe(0);
  expect(stdout).not.toMatch(/key-of-the/);
  expect(JSON.parse(stdout)).toMatchObject({
    listen: { host: "127.0.0.1", port: 8_001 },
    admin: { port: 9_001 },
    engines: [
      { url: "http://127.0.0.1:8000", weight: 1 },
      { url: "http://127.0.0.1:8010", weight: 2 },
    ],
    policy: { name: "consistent_hashing" },
    drain: { grace: "90s" },
  });
});

test("flags go before the environment, and the environment before the file", async () => {
  const env = { ...secrets, ESPALIER_LISTEN_PORT: "8002", ESPALIER_ADMIN_PORT: "9002", ESPALIER_POLICY: "random" };
  const args = ["check-config", "--json", "-c", file(), "--listen-port", "8003", "--engine", "http://127.0.0.1:8020"];
  const { stdout } = await run(args, { env });
  expect(JSON.parse(stdout)).toMatchObject({
    listen: { host: "127.0.0.1", port: 8_003 },
    admin: { port: 9_002 },
    policy: { name: "random" },
    engines: [{ url: "http://127.0.0.1:8020" }],
  });
});

test("every mistake of a file has its line: path, value, what is expected, the nearest key, and where it stands", async () => {
  const path = temporaryFile(
    "bad.yaml",
    `listen:
  prot: 1
  port: seventy
engines: [ftp://x]
policy: robin
time-outs: {}
`,
  );
  const { code, stdout, stderr } = await run(["check-config", "-c", path]);
  expect([code, stdout]).toEqual([1, ""]);
  const lines = stderr.split("\n");
  for (const line of [
    `listen.prot: is not a known key; did you mean port? (${path}:2:3)`,
    `listen.port: "seventy" is not an integer from 0 to 65535 (${path}:3:3)`,
    `time-outs: is not a known key; did you mean timeouts? (${path}:6:1)`,
  ]) {
    expect(lines.some((written) => written.includes(line))).toBe(true);
  }
  expect(stderr).toMatch(/engines\[0\]\.url: "ftp:\/\/x" is not an http:\/\/ or https:\/\/ URL/);
  expect(stderr).toMatch(/policy.name: "robin" is not one of predicted_latency, /);
  expect(stderr).toContain("(config_invalid)");
});

test("`serve` refuses the same, in the same words, before it listens", async () => {
  const path = temporaryFile("bad.yaml", "listen: { port: seventy }\n");
  const [check, serve] = await Promise.all([run(["check-config", "-c", path]), run(["serve", "-c", path])]);
  expect(serve).toEqual(check);
  expect(serve.code).toBe(1);
});

test("mistakes in flags and in the environment are named by where they were written", async () => {
  const env = { ESPALIER_LISTEN_PORT: "x", ESPALIER_LISTEN_PROT: "1" };
  const { code, stderr } = await run(["check-config", "--drain-grace", "soon"], { env });
  expect(code).toBe(1);
  expect(stderr).toMatch(/listen.port: "x" is not an integer from 0 to 65535 \(ESPALIER_LISTEN_PORT\)/);
  expect(stderr).toMatch(
    /ESPALIER_LISTEN_PROT: is not a known environment variable; did you mean ESPALIER_LISTEN_PORT\?/,
  );
  expect(stderr).toMatch(/drain.grace: "soon" is not .* \(--drain-grace\)/);
});

test("a file that cannot be read, and one that is no YAML", async () => {
  const path = temporaryFile("broken.yaml", "listen: [1\n");
  const [absent, broken] = await Promise.all([
    run(["check-config", "-c", "/nowhere/espalier.yaml"]),
    run(["check-config", "-c", path]),
  ]);
  expect([absent.code, broken.code]).toEqual([1, 1]);
  expect(absent.stderr).toContain("Cannot read /nowhere/espalier.yaml: ENOENT");
  expect(absent.stderr).toContain("(config_unreadable)");
  expect(broken.stderr).toContain(`${path}:2:1`);
});
