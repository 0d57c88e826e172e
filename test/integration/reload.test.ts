import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createRouter, loadConfig } from "@espalier/server";
import { createRecordingLogger, startDnsServer, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, openPost, post } from "./client.ts";
import { httpEngine } from "./engines.ts";
import { createRig, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

type Named = Pick<Sim, "url" | "id">;
type Section = Readonly<Record<string, unknown>>;

/** A folder as Kubernetes mounts a ConfigMap: the file is a link into `..data`, itself a link that is swapped. */
async function mountedConfig() {
  const folder = await mkdtemp(join(tmpdir(), "espalier-reload-"));
  rig.own(() => rm(folder, { recursive: true }));
  const file = join(folder, "espalier.yaml");
  let version = 0;
  const write = async (text: string): Promise<void> => {
    const name = `..version-${++version}`;
    await mkdir(join(folder, name));
    await writeFile(join(folder, name, "espalier.yaml"), text);
    await symlink(name, join(folder, "..new"));
    await rename(join(folder, "..new"), join(folder, "..data"));
  };
  const link = () => symlink(join("..data", "espalier.yaml"), file);
  return { file, write, link };
}

async function startRouter(sims: readonly Pick<Sim, "url">[], first: Section = {}) {
  const { file, write, link } = await mountedConfig();
  const textOf = (config: Section): string =>
    JSON.stringify({ listen: { port: 0 }, admin: { port: 0 }, engines: sims.map(({ url }) => url), ...config });
  await write(textOf(first));
  await link();
  const read = () => loadConfig({ file: { path: file, text: readFileSync(file, "utf8") } });
  const logger = createRecordingLogger();
  const router = createRouter({ config: read(), configSource: { file, read }, logger });
  rig.own(() => router.stop());
  await router.start();
  const status = async () => (await call(`${router.adminUrl}/admin/status`)).json as Record<string, unknown>;
  await waitFor(async () => (await status()).usableEngines === sims.length, { what: "usable engines" });
  return {
    router,
    logger,
    status,
    writeText: write,
    writeConfig: (config: Section) => write(textOf(config)),
    policyOf: async () => (await post(`${router.url}/v1/chat/completions`, chat())).headers["x-espalier-policy"],
  };
}

test("a new file applies within a second, and cuts no stream", async () => {
  const [slow] = await rig.sims(1, { speed: 20 });
  const { router, writeConfig, policyOf, status } = await startRouter([slow!], { policy: "least_work" });
  expect(await policyOf()).toBe("least_work");
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true, max_tokens: 400 }));
  await stream.head;
  await writeConfig({ policy: "round_robin", models: { aliases: { other: "tiny" } } });
  await waitFor(async () => (await policyOf()) === "round_robin", { what: "the new policy", deadlineMs: 2_000 });
  expect((await post(`${router.url}/v1/chat/completions`, chat({ model: "other" }))).status).toBe(200);
  const text = (await stream.body).toString("utf8");
  expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
  expect((await status()).lastReload).toMatchObject({
    trigger: "file",
    applied: ["models.aliases.other", "policy.name"],
  });
});

test("a broken file changes nothing and says why, in the log, in the metrics and to whoever asks", async () => {
  const sims = await rig.sims(1);
  const { router, writeText, writeConfig, policyOf, logger } = await startRouter(sims, { policy: "least_work" });
  await writeText("policy: least_wrok\n");
  await waitFor(() => logger.lines.some(({ level }) => level === "error"), { what: "the error in the log" });
  expect(await policyOf()).toBe("least_work");
  const answer = await call(`${router.adminUrl}/admin/reload`, { method: "POST" });
  expect(answer.status).toBe(422);
  expect(answer.json).toMatchObject({ applied: [], error: { code: "config_invalid" } });
  expect(answer.text).toContain("least_work");
  const metrics = (await call(`${router.adminUrl}/metrics`)).text;
  expect(metrics).toContain("espalier_config_last_reload_successful 0");
  await writeConfig({ policy: "random" });
  await waitFor(async () => (await policyOf()) === "random", { what: "the mended file's policy" });
});

test("engines of the file come and go", async () => {
  const [a, b] = await rig.sims(2);
  const { router, writeConfig, status } = await startRouter([a!]);
  const engines = async () => {
    const { json } = await call(`${router.adminUrl}/admin/engines`);
    return (json.engines as readonly { readonly id: string }[]).map(({ id }) => id);
  };
  await writeConfig({ engines: [a!.url, b!.url] });
  await waitFor(async () => (await status()).usableEngines === 2, { what: "the second engine" });
  await writeConfig({ engines: [b!.url] });
  await waitFor(async () => (await engines()).join() === b!.id, { what: "the end of the first" });
});

test("sources of engines come, change and go; streams go on, and no engine of another source is touched", async () => {
  const server = await startDnsServer();
  rig.own(() => server.stop());
  // Its answer ends when the test says so.
  const slow = await httpEngine(rig, ({ response }) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write("data: {}\n\n");
  });
  const [b, c] = await rig.sims(2);
  server.set("engines.test", { a: ["127.0.0.1"] });
  server.set("others.test", { a: ["127.0.0.1"] });
  const port = (sim: Named): string => new URL(sim.url).port;
  const name = (text: string, options: Section = {}) => ({
    ...{ name: text, servers: [server.address], interval: "100ms" },
    ...options,
  });
  const { router, writeConfig, status, logger } = await startRouter([slow]);
  const stream = openPost(`${router.url}/v1/chat/completions`, chat({ stream: true }));
  await stream.head;
  const weights = async () => {
    const { json } = await call(`${router.adminUrl}/admin/engines`);
    const engines = json.engines as readonly { readonly id: string; readonly weight: number; readonly state: string }[];
    return engines.map(({ id, weight, state }) => `${id} ${weight} ${state}`).sort();
  };
  const reloaded = async (config: Section, expected: readonly string[]): Promise<void> => {
    await writeConfig(config);
    const isSo = async () => (await weights()).join() === [...expected].sort().join();
    await waitFor(isSo, { what: `engines ${expected.join()}`, deadlineMs: 10_000 });
  };
  const up = (sim: Named, weight = 1): string => `${sim.id} ${weight} up`;

  const first = name(`engines.test:${port(b!)}`);
  await reloaded({ discovery: { dns: [first] } }, [up(slow), up(b!)]);
  expect((await status()).lastReload).toMatchObject({ applied: ["discovery.dns"], needsRestart: [] });
  // The engine with the stream goes over from the list to a name.
  const own = name(`engines.test:${port(slow)}`);
  await reloaded({ engines: [], discovery: { dns: [first, own, name(`others.test:${port(c!)}`)] } }, [
    ...[up(slow), up(b!), up(c!)],
  ]);
  await reloaded({ engines: [], discovery: { dns: [{ ...first, weight: 4 }, own] } }, [up(slow), up(b!, 4)]);
  await reloaded({ engines: [], discovery: { dns: [own] } }, [up(slow)]);
  slow.requests[0]!.response.end("data: [DONE]\n\n");
  expect((await stream.body).toString("utf8")).toMatch(/data: \[DONE\]\n\n$/);

  const changes = logger.lines.filter(({ message }) => message === "engine state changed");
  expect(changes.filter(({ fields }) => JSON.stringify(fields).includes(slow.id))).toHaveLength(1);
  expect(logger.lines.filter(({ level }) => level === "error")).toEqual([]);
  expect((await call(`${router.adminUrl}/metrics`)).text).toContain('espalier_discovery_source_up{source="dns');
});

test("what waits for a restart is named, and the running port stays", async () => {
  const sims = await rig.sims(1);
  const { router, writeConfig, status } = await startRouter(sims);
  const { url } = router;
  await writeConfig({ listen: { port: 1 }, limits: { "max-body-bytes": "1MiB" } });
  await waitFor(async () => (await status()).lastReload !== null, { what: "the reload" });
  expect((await status()).lastReload).toMatchObject({
    applied: [],
    needsRestart: ["limits.max-body-bytes", "listen.port"],
  });
  expect(router.url).toBe(url);
  expect((await call(`${router.adminUrl}/admin/config`)).json).toMatchObject({ listen: { port: 0 } });
});
