import { expect, test } from "vitest";
import { registerReload } from "../src/commands/reload.ts";
import { runCommand } from "./run-command.ts";
import { temporaryAdmin } from "./temporary.ts";

async function reload(status: number, outcome: object, ...more: readonly string[]) {
  const { admin, seen } = await temporaryAdmin(outcome, status);
  return { seen, ...(await runCommand(registerReload, "reload", "--admin", admin, ...more)) };
}

const nothing = { trigger: "admin", atMs: 0, applied: [], needsRestart: [] };

test("says what applies and what waits", async () => {
  const outcome = { ...nothing, applied: ["engines", "policy.name"], needsRestart: ["listen.port"] };
  const { seen, stdout, exitCode } = await reload(200, outcome);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(["POST /admin/reload"]);
  expect(stdout).toBe("applied: engines, policy.name\nneeds a restart: listen.port\n");
  expect(exitCode).toBeUndefined();
});

test("says when nothing is new", async () => {
  expect((await reload(200, nothing)).stdout).toBe("no changes\n");
});

test("a configuration that is not valid: why, and exit code 1, also as JSON", async () => {
  const outcome = { ...nothing, error: { code: "config_invalid", message: "policy: expected one of ..." } };
  const people = await reload(422, outcome);
  expect(people.stdout).toBe("not reloaded, previous configuration in use: policy: expected one of ...\n");
  expect(people.exitCode).toBe(1);
  const programs = await reload(422, outcome, "--json");
  expect([JSON.parse(programs.stdout), programs.exitCode]).toEqual([outcome, 1]);
});
