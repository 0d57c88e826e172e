import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSeededRandom, systemScheduler } from "@espalier/core";
import { createRecordingLogger, createSeriesMeter, type DnsServer, startDnsServer, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { createSeedSources } from "../../src/mesh/seed-sources.ts";
import { configOf } from "./mesh-rig.ts";

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

const name = "_mesh._tcp.routers.test";

function create(mesh: Readonly<Record<string, unknown>>, more: object = {}) {
  const [logger, meter] = [createRecordingLogger(), createSeriesMeter()];
  const ports = { scheduler: systemScheduler, random: createSeededRandom(1), logger, meter };
  const sources = createSeedSources({ config: configOf(mesh, more), ...ports });
  ends.push(() => sources.stop());
  let changes = 0;
  sources.found.onChange(() => {
    changes += 1;
  });
  return {
    ...{ sources, logger, found: sources.found },
    changes: () => changes,
    isUp: (source: string) => meter.value("espalier_mesh_seed_source_up", source),
    failures: (source: string) => meter.value("espalier_mesh_seed_source_failures_total", source),
    until: (...seeds: readonly string[]) =>
      waitFor(() => sources.found.seeds().join() === seeds.join(), { what: `seeds ${seeds.join()}` }),
  };
}

async function createFile(text: string) {
  const folder = await mkdtemp(join(tmpdir(), "espalier-seeds-"));
  ends.push(() => rm(folder, { recursive: true, force: true }));
  const path = join(folder, "seeds.yaml");
  await writeFile(path, text);
  return {
    path,
    async replace(next: string): Promise<void> {
      await writeFile(`${path}.new`, next);
      await rename(`${path}.new`, path);
    },
  };
}

async function startServer(): Promise<DnsServer> {
  const server = await startDnsServer();
  ends.push(() => server.stop());
  return server;
}

test("where nothing is to be followed, nothing is found, and that is known", async () => {
  const { sources, found } = create({ port: 0, seeds: ["a:1"] });
  expect(found.isTried).toBe(true);
  await sources.start();
  expect(found.seeds()).toEqual([]);
});

test("a file is followed; one that is broken keeps its last seeds, is logged and counted once, and is over when mended", async () => {
  const file = await createFile("[a:1, 'b:2']");
  const { sources, found, until, isUp, failures, logger, changes } = create({ "seeds-file": file.path });
  const source = `file ${file.path}`;
  await sources.start();
  expect([found.seeds(), found.isTried, isUp(source)]).toEqual([["a:1", "b:2"], true, 1]);
  await file.replace("[c:3]");
  await until("c:3");
  await file.replace("[c:99999]");
  await waitFor(() => isUp(source) === 0, { what: "failure" });
  expect([found.seeds(), failures(source)]).toEqual([["c:3"], 1]);
  const [line, ...others] = logger.lines.filter(({ level }) => level === "error");
  expect([line?.message, others]).toEqual(["source of other routers failed; last good list stays in use", []]);
  expect(String(line?.fields.error)).toContain("99999 is not a port");
  const before = changes();
  await file.replace("[]");
  await until();
  expect([isUp(source), changes()]).toEqual([1, before + 1]);
});

test("a file that is not there fails the start", async () => {
  const { sources } = create({ "seeds-file": "/nowhere/seeds.yaml", seeds: [name] });
  await expect(sources.start()).rejects.toMatchObject({ code: "config_unreadable" });
});

test("SRV records are asked for without holding up the start; what was tried is told", async () => {
  const dns = await startServer();
  dns.set("r1.test", { a: ["10.0.0.1"] });
  dns.set(name, { srv: [{ name: "r1.test", port: 7_946 }] });
  const file = await createFile("[a:1]");
  const { sources, found, until, isUp } = create({
    ...{ seeds: ["x:1", name], "seed-servers": [dns.address], "seeds-file": file.path },
  });
  await sources.start();
  expect([found.isTried, found.seeds()]).toEqual([false, ["a:1"]]);
  await until("a:1", "10.0.0.1:7946");
  await waitFor(() => found.isTried, { what: "everything tried" });
  expect(isUp(`dns ${name}`)).toBe(1);
});

test("a name server that fails leaves the others to be found, and counts as tried", async () => {
  const dns = await startServer();
  dns.mode = "fail";
  const { sources, found, isUp, failures, logger } = create({ seeds: [name], "seed-servers": [dns.address] });
  await sources.start();
  await waitFor(() => found.isTried, { what: "everything tried", deadlineMs: 10_000 });
  expect([found.seeds(), isUp(`dns ${name}`), failures(`dns ${name}`)]).toEqual([[], 0, 1]);
  expect(logger.lines.filter(({ level }) => level === "warn")).toHaveLength(1);
});

test("an API server that is away leaves the others to be found", async () => {
  const { sources, found, isUp } = create(
    { "seed-services": ["ai/peers:mesh"], "seed-pods": [{ selector: "app=e", namespace: "ai", port: 7_946 }] },
    { discovery: { kubernetes: { "api-server": "http://127.0.0.1:9" } } },
  );
  await sources.start();
  expect([isUp("service ai/peers"), isUp("pods ai/app=e")]).toEqual([1, 1]);
  await waitFor(() => isUp("service ai/peers") === 0 && isUp("pods ai/app=e") === 0, { what: "failures" });
  expect(found.seeds()).toEqual([]);
});
