import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createRouter, loadConfig } from "@espalier/server";
import { createRecordingLogger, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { call, chat, post } from "./client.ts";
import { parseMetrics } from "./prometheus.ts";
import { createRig, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const linkEnded = "router link closed";
/** Six programs' worth of work in one process, on a machine that may be busy. */
const deadlineMs = 20_000;
const [old, fresh] = ["the-old-secret-of-the-mesh", "the-new-secret-of-the-mesh"];

/** A router whose secrets are in files beside its configuration, as they are mounted in production. */
async function startRouter(name: string, sims: readonly Sim[], seeds: readonly string[], secret = old) {
  const folder = await mkdtemp(join(tmpdir(), "espalier-rotation-"));
  rig.own(() => rm(folder, { recursive: true }));
  const file = join(folder, "espalier.yaml");
  const write = async (own: string, accepted: readonly string[]): Promise<void> => {
    await writeFile(join(folder, "secret"), `${own}\n`);
    await Promise.all(accepted.map((one, at) => writeFile(join(folder, `accepted-${at}`), `${one}\n`)));
    const fromFile = (path: string) => `\${file:${join(folder, path)}}`;
    const secrets = {
      secret: fromFile("secret"),
      "accepted-secrets": accepted.map((_, at) => fromFile(`accepted-${at}`)),
    };
    const mesh = { port: 0, "router-id": name, seeds, ...secrets };
    const engines = sims.map(({ url }) => url);
    await writeFile(
      file,
      JSON.stringify({ listen: { port: 0 }, admin: { port: 0 }, engines, mesh, policy: "cache_aware" }),
    );
  };
  await write(secret, []);
  const readText = (path: string): string => readFileSync(path, "utf8");
  const read = () => loadConfig({ file: { path: file, text: readText(file) }, readText });
  const logger = createRecordingLogger();
  const router = createRouter({ config: read(), configSource: { file: undefined, read }, logger });
  rig.own(() => router.stop());
  await router.start();
  return {
    name,
    router,
    lines: logger.lines,
    /** How many links it has had at the same time, after each that came or went. */
    linkCounts(): readonly number[] {
      let count = 0;
      return logger.lines.flatMap(({ message }) => {
        if (message === "router linked") return [++count];
        return message === linkEnded ? [--count] : [];
      });
    },
    /** Links that have given way to a new one; those to one router if it is named. */
    ended: (to?: string) =>
      logger.lines.filter(
        ({ message, fields: { why, router: other } }) =>
          message === linkEnded && why === "replaced" && (to === undefined || other === to),
      ).length,
    async change(own: string, accepted: readonly string[]) {
      await write(own, accepted);
      return router.reload("signal");
    },
    rejects: async () =>
      parseMetrics((await call(`${router.adminUrl}/metrics`)).text).sum("espalier_mesh_rejects_total", {
        reason: "secret",
      }),
  };
}

test("three routers change their secret by reloads, one after the other, and no request notices", async () => {
  const sims = await rig.sims(2);
  const first = await startRouter("a", sims, []);
  const address = first.router.meshAddress!;
  const routers = [first, await startRouter("b", sims, [address]), await startRouter("c", sims, [address])];
  const areLinked = () => routers.every((router) => router.linkCounts().at(-1) === 2);
  await waitFor(areLinked, { what: "links between all", deadlineMs });
  await waitFor(() => routers.every(({ router }) => router.readiness().ready), { what: "ready routers", deadlineMs });
  const statuses: number[] = [];
  let isOver = false;
  const traffic = routers.map(async ({ router }) => {
    while (!isOver) statuses.push((await post(`${router.url}/v1/chat/completions`, chat({ stream: true }))).status);
  });
  const endTraffic = () => {
    isOver = true;
    return Promise.all(traffic);
  };
  rig.own(endTraffic);
  // Routers that dial each other at the same time have two links for a moment, and both tell of the end of one.
  // The second one may be long in coming: many requests later it is there.
  const isSettled = () =>
    statuses.length > 40 &&
    areLinked() &&
    routers.every((one) => routers.every((other) => one.ended(other.name) === other.ended(one.name)));
  await waitFor(isSettled, { what: "one link between any two", deadlineMs });
  const endedBefore = routers.map(({ ended }) => ended());
  const linkedAt = routers.map((router) => router.linkCounts().length);

  for (const router of routers) {
    expect(await router.change(fresh, [old])).toMatchObject({
      applied: ["mesh.accepted-secrets", "mesh.secret"],
      needsRestart: [],
      error: undefined,
    });
  }
  expect(routers.map(({ ended }) => ended())).toEqual(endedBefore);
  for (const [at, router] of routers.entries()) {
    expect((await router.change(fresh, [])).error).toBeUndefined();
    await waitFor(() => router.ended() >= endedBefore[at]! + 2 && areLinked(), {
      what: "links made with the new secret",
    });
  }
  await endTraffic();

  expect(statuses.length).toBeGreaterThan(60);
  expect(new Set(statuses)).toEqual(new Set([200]));
  // Each link was made anew once, and never both of a router at the same time.
  for (const [at, router] of routers.entries()) {
    expect(router.ended()).toBe(endedBefore[at]! + 2);
    expect(routers.reduce((sum, { name }) => sum + router.ended(name), 0)).toBe(router.ended());
    expect(Math.min(...router.linkCounts().slice(linkedAt[at]! - 1))).toBeGreaterThanOrEqual(1);
    expect(await router.rejects()).toBe(0);
  }

  const late = await startRouter("late", sims, [address]);
  await waitFor(async () => (await late.rejects()) > 0, { what: "a refusal", deadlineMs });
  expect(late.linkCounts()).toEqual([]);
  expect(areLinked()).toBe(true);
  for (const { lines } of [...routers, late]) expect(JSON.stringify(lines)).not.toMatch(/secret-of-the-mesh/);
}, 60_000);
