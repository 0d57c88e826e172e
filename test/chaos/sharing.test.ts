import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, test } from "vitest";
import { call, post } from "../integration/client.ts";
import { type HttpEngine, httpEngine } from "../integration/engines.ts";
import { createRig } from "../integration/rig.ts";
import { since } from "./deadlines.ts";
import { isDraining, setDraining } from "./engine-drain.ts";
import { type Fleet, startFleet, untilWhole } from "./fleet.ts";
import { learn } from "./learn.ts";

const engines = 3;
const rig = createRig();
afterAll(() => rig.close());
let fleet: Fleet;
/** An engine that is asked for nothing but stored answers that nobody remembers. */
let witness: HttpEngine;
beforeAll(async () => {
  witness = await httpEngine(rig, ({ response }) => response.writeHead(404).end("{}"), { models: ["another"] });
  fleet = await startFleet(rig, { routers: 3, engines, flags: ["--engine", witness.url] });
}, 120_000);

/** Those that dashboards and alarms are made of. */
const meshMetrics = [
  "espalier_load_frames_received_total",
  "espalier_load_gauge_age_seconds",
  "espalier_load_lag_seconds",
  "espalier_load_leases_expired_total",
  "espalier_load_phantom_requests",
  "espalier_mesh_dial_failures_total",
  "espalier_mesh_dropped_frames_total",
  "espalier_mesh_feed_moves_total",
  "espalier_mesh_feeds_unowned",
  "espalier_mesh_invalid_frames_total",
  "espalier_mesh_links_closed_total",
  "espalier_mesh_links",
  "espalier_mesh_member_changes_total",
  "espalier_mesh_members",
  "espalier_mesh_pauses_total",
  "espalier_mesh_received_bytes_total",
  "espalier_mesh_refutations_total",
  "espalier_mesh_rejects_total",
  "espalier_mesh_replication_lag_seconds",
  "espalier_mesh_resyncs_total",
  "espalier_mesh_sent_bytes_total",
  "espalier_mesh_snapshots_total",
  "espalier_mesh_digests_total",
];

/** Seen from the root of the repository. */
const espalier = "apps/router/bin/espalier.mjs";

test("operators see the mesh: /admin/mesh, espalier status, and the metrics by their names", async () => {
  await learn(fleet);
  const [one, two, three] = fleet.routers;
  const isMeasured = async (): Promise<boolean> =>
    (await one!.mesh()).members.every(({ roundTripMs }) => roundTripMs !== null);
  await waitFor(isMeasured, { what: "round trips" });
  expect(await one!.mesh()).toMatchObject({
    backend: "peers",
    router: one!.id,
    waitingFor: [],
    members: expect.arrayContaining(
      [two!, three!].map(({ id }) =>
        expect.objectContaining({
          router: id,
          state: "alive",
          isLinked: true,
          isDraining: false,
          roundTripMs: expect.any(Number),
        }),
      ),
    ),
    load: [two!, three!].map(({ id }) => ({ router: id, inFlight: expect.any(Number) })),
    feeds: { unowned: 0 },
    facts: { digest: expect.stringMatching(/^[0-9a-f]{16}$/) },
  });
  const env = { ...process.env, ESPALIER_SKIP_BUILD: "1" };
  const { stdout } = await promisify(execFile)(process.execPath, [espalier, "status", "--admin", one!.adminUrl], {
    env,
  });
  expect(stdout).toMatch(/^ready\n/);
  expect(stdout).toMatch(new RegExp(`mesh +${one!.id}, epoch \\d+, by peers at ${one!.meshAddress}`));
  expect(stdout).toMatch(/facts +\d+ blocks of \d targets?, \d settled, digest [0-9a-f]{16}/);
  expect(stdout).toMatch(new RegExp(`${two!.id} +alive +${two!.meshAddress} +[0-9.]+ +[0-9a-f]{8} +yes`));
  const page = await one!.metrics();
  const missing = meshMetrics.filter((name) => !page.types.has(name));
  expect(missing).toEqual([]);
  expect(page.sum("espalier_mesh_links")).toBe(2);
  expect(page.sum("espalier_mesh_members", { state: "alive" })).toBe(2);
  expect(page.sum("espalier_mesh_feeds_unowned")).toBe(0);
});

test("an engine that an operator drains at one router is drained at all; what is stored through one is found through the others without asking engines", async () => {
  const [one, two, three] = fleet.routers;
  const { id } = fleet.sims[1]!;
  await setDraining(one!, id, true);
  for (const router of fleet.routers) await since().within(500, "drain", () => isDraining(router, id));
  const before = (await fleet.sims[1]!.state()).requests.length;
  await learn(fleet);
  expect((await fleet.sims[1]!.state()).requests.slice(before).filter(({ path }) => path.includes("chat"))).toEqual([]);
  await setDraining(three!, id, false);
  for (const router of fleet.routers)
    await since().within(500, "end of the drain", async () => !(await isDraining(router, id)));

  const made = await post(`${one!.url}/v1/responses`, { model: "tiny", input: "hello", max_output_tokens: 3 });
  const path = `/v1/responses/${made.json.id}`;
  // What a router writes is read in its order: who knows of a later prompt knows where the answer is, too.
  const placed = async (): Promise<number> =>
    (await two!.metrics()).sum("espalier_placements_received_total", { outcome: "applied" });
  const known = await placed();
  const prompt = Array.from({ length: 64 }, (_, at) => `later${at}`).join(" ");
  expect((await post(`${one!.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 3 })).status).toBe(200);
  await since().within(2_000, "a later prompt of the same router", async () => (await placed()) > known);
  const read = await call(two!.url + path);
  expect([read.status, read.headers["x-espalier-engine"]]).toEqual([200, made.headers["x-espalier-engine"]]);
  expect(witness.requests.filter((request) => request.path === path)).toEqual([]);
});

test("a session whose turns go to different routers is one program at each, and ends once", async () => {
  const headers = { "x-session-id": "agent-of-three-routers" };
  const prompt = Array.from({ length: 64 }, (_, at) => `agent${at}`).join(" ");
  for (const router of fleet.routers) {
    const answer = await post(`${router.url}/v1/completions`, { model: "tiny", prompt, max_tokens: 3 }, headers);
    expect(answer.status).toBe(200);
  }
  const programOf = async (router: { readonly adminUrl: string }) => {
    const { programs } = (await call(`${router.adminUrl}/admin/programs`)).json as { programs: readonly object[] };
    return programs.find((program) => "steps" in program && program.steps === 3);
  };
  const whole = { source: "header:x-session-id", state: "idle", model: "tiny", failed: 0, queued: 0, running: 0 };
  for (const router of fleet.routers) {
    await since().within(5_000, "the program", async () => (await programOf(router)) !== undefined);
    expect(await programOf(router)).toMatchObject(whole);
  }
});

test("a router that joins is not ready before it has what its peers have", async () => {
  await learn(fleet);
  for (const { id } of fleet.routers) fleet.network.set(id, "router-9", { kind: "delay", delayMs: 150 });
  // It lets clients in once it is ready, and is ready once it knows what the others know.
  const joiner = await fleet.start("router-9");
  expect(await call(`${joiner.url}/readyz`)).toMatchObject({ status: 200 });
  const waits = joiner.log().find(({ msg }) => msg.startsWith("client listener opens"));
  expect(waits).toMatchObject({ reasons: expect.arrayContaining([expect.not.stringContaining("engine")]) });
  // Nobody asks engines for anything: what the others know stays as it is.
  const [{ facts }, { facts: reported }] = await Promise.all([fleet.routers[0]!.mesh(), joiner.mesh()]);
  expect(facts.blocks).toBeGreaterThan(0);
  expect(reported).toMatchObject({ digest: facts.digest, blocks: facts.blocks });
  fleet.network.heal();
  await untilWhole([...fleet.routers, joiner], engines);
});
