import { spawnSync } from "node:child_process";
import { chmod, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { envoyConfig, requestBodyModes } from "../../src/envoy/envoy-config.ts";
import { startEnvoy } from "../../src/envoy/start-envoy.ts";
import { envoyOptions, envoyProgram, temporaryEnvoy } from "./temporary-envoy.ts";

const program = envoyProgram("Envoy with the configuration for endpoint pickers");
const config = envoyConfig(envoyOptions());

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-start-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

const isAlive = (pid: number | undefined): boolean => {
  try {
    return pid !== undefined && process.kill(pid, 0);
  } catch {
    return false;
  }
};

const envoyFolders = async (): Promise<readonly string[]> =>
  (await readdir(tmpdir())).filter((name) => name.startsWith("espalier-envoy-"));

// Others on this machine may start an Envoy too.
beforeEach(async () => {
  vi.stubEnv("TMPDIR", await temporaryFolder());
});
afterEach(() => void vi.unstubAllEnvs());

/** A shell script in the place of Envoy. */
async function fakeEnvoy(script: string): Promise<string> {
  const path = join(await temporaryFolder(), "envoy");
  await writeFile(path, `#!/bin/sh\n${script}\n`);
  await chmod(path, 0o755);
  return path;
}

test("a program that ends before it is ready: the error has what it wrote, and its configuration is removed", async () => {
  const ends = await fakeEnvoy("echo 'no such field: abacus' >&2; exit 1");
  await expect(startEnvoy({ program: ends, config })).rejects.toThrow(/Envoy ended \(.*\)\nno such field: abacus/);
  expect(await envoyFolders()).toEqual([]);
});

test("no program at all: the error names it", async () => {
  await expect(startEnvoy({ program: "/nowhere/envoy", config })).rejects.toThrow(/\/nowhere\/envoy ENOENT/);
});

test("one that is never ready is ended at the deadline, and at once when the start is aborted", async () => {
  const folder = await temporaryFolder();
  const hangs = await fakeEnvoy(`echo $$ > ${join(folder, "pid")}; echo still waiting >&2; exec sleep 1000`);
  const pidOf = async () => Number((await readdir(folder)).length && spawnSync("cat", [join(folder, "pid")]).stdout);
  await expect(startEnvoy({ program: hangs, config, startTimeoutMs: 500 })).rejects.toThrow(
    "Envoy was not ready within 500 ms\nstill waiting",
  );
  expect(isAlive(await pidOf())).toBe(false);
  await rm(join(folder, "pid"));
  const abort = new AbortController();
  const running = expect(startEnvoy({ program: hangs, config, signal: abort.signal })).rejects.toThrow("enough");
  const pid = await waitFor(async () => (await pidOf()) || undefined, { what: "start" });
  abort.abort(new Error("enough"));
  await running;
  expect(isAlive(pid)).toBe(false);
});

describe.skipIf(program === undefined)("the real Envoy", () => {
  test("serves at a free port, refuses requests while no picker answers, whatever they ask for, and ends", async () => {
    const envoy = await temporaryEnvoy(program!);
    const { url, adminUrl } = envoy.listening;
    const headers = { "x-gateway-destination-endpoint": "127.0.0.1:21" };
    for (const body of ["{}", "x".repeat(100_000)]) {
      const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", body, headers });
      expect([response.status, await response.text()]).toEqual([503, ""]);
    }
    const stats = await (await fetch(`${adminUrl}/stats?filter=engines.upstream_rq_total`)).text();
    expect(stats).toBe("cluster.engines.upstream_rq_total: 0\n");
    expect(await envoyFolders()).toEqual([]);
    await envoy.stop();
    expect(await envoy.exited).toBe(0);
    expect(isAlive(envoy.process.pid)).toBe(false);
    await envoy.stop();
  });

  test("several run beside each other; one that is killed says nothing and ends", async () => {
    const [first, second] = await Promise.all([temporaryEnvoy(program!), temporaryEnvoy(program!)]);
    expect(first.listening.url).not.toBe(second.listening.url);
    first.process.kill("SIGKILL");
    expect(await first.exited).toBeNull();
    expect((await fetch(`${second.listening.adminUrl}/ready`)).status).toBe(200);
  });

  test("a configuration that it refuses: the error has its reason", async () => {
    const wrong = { ...config, overload_manager: { abacus: 1 } };
    await expect(temporaryEnvoy(program!, { config: wrong })).rejects.toThrow(/Envoy ended .*abacus/s);
    const [listener] = envoyConfig(envoyOptions({ listen: { host: "192.0.2.1", port: 80 } })).static_resources
      .listeners;
    const elsewhere = { ...config, static_resources: { ...config.static_resources, listeners: [listener!] } };
    await expect(temporaryEnvoy(program!, { config: elsewhere })).rejects.toThrow(/cannot bind '192.0.2.1:80'/);
  });

  test("every form of the configuration is valid for Envoy", async () => {
    const folder = await temporaryFolder();
    const forms = requestBodyModes.flatMap((requestBody) =>
      [true, false].map((answersThroughPicker) => envoyOptions({ requestBody, answersThroughPicker })),
    );
    const names = { pickers: [{ host: "pickers.internal", port: 9002, healthPort: 9003 }] };
    forms.push(envoyOptions(names), envoyOptions({ subset: ["127.0.0.1:21"] }), envoyOptions({ subset: [] }));
    for (const form of forms) {
      const path = join(folder, "envoy.json");
      await writeFile(path, JSON.stringify(envoyConfig(form)));
      const { stdout, stderr } = spawnSync(program!, ["--mode", "validate", "-l", "warning", "-c", path], {
        encoding: "utf8",
      });
      expect(stdout + stderr).toBe(`configuration '${path}' OK\n`);
    }
  });
});
