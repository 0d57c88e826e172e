import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { run, start } from "./program.ts";

const commands: readonly (readonly [string, readonly string[]])[] = [
  [
    "",
    [
      "Run:",
      "Look:",
      "Measure:",
      "serve",
      "demo",
      "status",
      "engines",
      "explain",
      "check-config",
      "migrate",
      "version",
      "replay",
      "simulate",
    ],
  ],
  [
    "serve",
    ["--config <file>", "Listen: ", "Admin: ", "Policy: ", "Timeouts: ", "Drain: ", "--engine <", "--log-level <"],
  ],
  ["demo", ["Engines:", "Routers:", "Load:", "--engine <url>", "--policy <name>", "--duration <time>"]],
  ["status", ["--admin <url>", "--key <key>", "--json", "--watch [seconds]", "ESPALIER_ADMIN_URL"]],
  ["reload", ["--admin <url>", "--key <key>", "--json", "SIGHUP"]],
  ["engines", ["list", "add", "remove", "drain", "undrain"]],
  ["engines add", ["<url>", "--id <id>", "--model <name>", "--role <role>", "--label <", "--admin <url>", "--json"]],
  ["engines remove", ["<id>", "--admin <url>", "--json"]],
  ["engines list", ["--admin <url>", "--json"]],
  ["engines drain", ["<id>", "--admin <url>", "--json"]],
  ["engines undrain", ["<id>", "--admin <url>", "--json"]],
  ["explain", ["--admin <url>", "--file <file>", "--endpoint <name>", "--header <", "--key <key>", "--json"]],
  ["check-config", ["--config <file>", "--json", "Listen: ", "--engine <"]],
  ["migrate", ["<input...>", "--from <name>", "llm-d (EndpointPickerConfig)", "smg (flags of SMG", "--json"]],
  ["version", ["--json"]],
  ["completion", ["<shell>", "bash", "zsh", "fish", "source <("]],
  ["replay", ["Trace:", "Existing endpoints:", "Simulated fleet:", "Output:", "--trace <file>", "--json"]],
  [
    "simulate",
    [
      "Scenario:",
      "Compare:",
      "Output:",
      "cov in time",
      "ttft/oracle",
      "--sharing <",
      "--load <shares>",
      "--plot <",
      "--report",
      "--json",
    ],
  ],
];

test("every command explains itself, in groups, and exits with 0", async () => {
  const outcomes = await Promise.all(
    commands.map(([command]) => run([...command.split(" ").filter((word) => word !== ""), "--help"])),
  );
  for (const [at, [command, words]] of commands.entries()) {
    const { code, stdout, stderr } = outcomes[at]!;
    expect([command, code, stderr]).toEqual([command, 0, ""]);
    expect(stdout).toMatch(new RegExp(`^Usage: espalier ?${command}`));
    for (const word of words) expect(stdout).toContain(word);
  }
  const [{ stdout: overview } = { stdout: "" }] = outcomes;
  expect(overview).toContain("Exit codes: 0 success, 1 failure, 2 usage error, 130 or 143 killed by a second");
});

test("the version, for people and for programs", async () => {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  const [short, text, json] = await Promise.all([run(["--version"]), run(["version"]), run(["version", "--json"])]);
  expect(short).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: "" });
  expect(text).toMatchObject({ code: 0, stdout: `espalier ${version} (Node ${process.versions.node})\n` });
  expect(JSON.parse(json.stdout)).toEqual({ espalier: version, node: process.versions.node });
});

const mistakes: readonly (readonly [readonly string[], RegExp])[] = [
  [[], /^Usage: espalier/],
  [["workers", "list"], /error: espalier: "workers" is not one of serve, .*; renamed to engines/],
  [["servve"], /error: unknown command 'servve'\n\(Did you mean serve\?\)/],
  [["serve", "--listen-prot", "1"], /error: unknown option '--listen-prot'\n\(Did you mean .*--listen-port/],
  [["replay"], /error: required option '--trace <file>' not specified/],
  [["demo", "--policy", "robin"], /option '--policy <name>' argument 'robin' is invalid. Allowed choices are random, /],
  [["demo", "--duration", "10"], /error: --duration must be a length of time such as 500ms, 30s or 2m, not "10"\n$/],
  [["engines", "drain"], /error: missing required argument 'id'/],
];

test("who calls it wrongly is told how on standard error, with exit code 2", async () => {
  const outcomes = await Promise.all(mistakes.map(([args]) => run(args)));
  for (const [at, [args, message]] of mistakes.entries()) {
    expect([args, outcomes[at]?.code, outcomes[at]?.stdout]).toEqual([args, 2, ""]);
    expect(outcomes[at]?.stderr).toMatch(message);
  }
});

// `espalier check-config | head -1` used to end in a stack trace of EPIPE.
test("a reader that has seen enough is no failure", async () => {
  const program = start(["check-config"]);
  program.process.stdout?.destroy();
  const { code, stderr } = await program.ended;
  expect([code, stderr]).toEqual([
    0,
    "warning: No engines are configured; the router is not ready until some are added.\n",
  ]);
});

test("the seeds of faults are run by a script that explains itself, too", async () => {
  const script = "scripts/simulate-seeds.mjs";
  const [help, unknown, wrong] = await Promise.all([
    run(["--help"], { script }),
    run(["--sede", "7"], { script }),
    run(["--count", "0"], { script }),
  ]);
  expect(help).toMatchObject({ code: 0, stderr: "" });
  for (const flag of ["seed N", "count N", "jobs N", "only KINDS", "trace"]) expect(help.stdout).toContain(`--${flag}`);
  expect([unknown.code, unknown.stdout, wrong.code, wrong.stdout]).toEqual([2, "", 2, ""]);
  expect(unknown.stderr).toMatch(/^error: Unknown option '--sede'; .* lists the flags\n$/);
  expect(wrong.stderr).toMatch(/^error: --count must be a whole number/);
});
