import { createSeededRandom } from "@espalier/core";
import { freePort, waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createRig } from "../integration/rig.ts";
import { type Fleet, startFleet } from "./fleet.ts";
import { haveEqualFacts } from "./mesh-views.ts";
import { acceptFrame, dialRaw, helloFrame, proofFrame, readRejection } from "./raw-mesh-peer.ts";
import { type RouterProcess, startRouter } from "./router-process.ts";
import { startTraffic } from "./traffic.ts";

const secret = "what all of them know";
const engines = 2;

const rig = createRig();
afterAll(() => rig.close());
let fleet: Fleet;
beforeAll(async () => {
  fleet = await startFleet(rig, { routers: 2, engines, flags: ["--mesh-secret", secret] });
}, 120_000);

/** A router without engines that wants to join. */
async function startStranger(id: string, seed: string, flags: readonly string[]): Promise<RouterProcess> {
  return startRouter(rig, id, [
    ...["--mesh-router-id", id, "--mesh-port", String(await freePort()), "--mesh-seed", seed],
    ...["--mesh-join-grace", "1s", ...flags],
  ]);
}

const rejects = async (router: RouterProcess, reason: string): Promise<number> =>
  (await router.metrics()).sum("espalier_mesh_rejects_total", { reason });

/** Whatever strangers did, the routers that belong together never noticed. */
async function expectUnharmed({ routers }: Fleet): Promise<void> {
  const traffic = startTraffic({ routers: () => routers });
  await waitFor(() => traffic.completed >= 10, { what: "ten answers", deadlineMs: 20_000 });
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
  for (const router of routers) {
    const { members } = await router.mesh();
    const others = members.filter((member) => routers.some(({ id }) => id === member.router));
    expect(others.map(({ state, isLinked }) => [state, isLinked])).toEqual([["alive", true]]);
    const ends = router
      .log()
      .filter(({ msg, router: of }) => msg.startsWith("router link closed") && of !== "stranger");
    expect(ends.filter(({ why }) => why !== "replaced")).toEqual([]);
  }
  await waitFor(() => haveEqualFacts(routers), { what: "equal facts" });
}

const misfits: readonly (readonly [reason: string, flags: readonly string[]])[] = [
  ["secret", ["--mesh-secret", "what somebody else knows"]],
  ["cluster-name", ["--mesh-secret", secret, "--mesh-cluster", "another"]],
  ["fleet-seed", ["--mesh-secret", secret, "--prefix-seed", "another"]],
  ["block-size", ["--mesh-secret", secret, "--prefix-block-size", "32"]],
];

const refusal = { code: "mesh_rejected", level: "warn" };

test("a router with another secret, cluster, seed or block size is refused, by name in log and metrics of both, and goes on alone", async () => {
  const [first] = fleet.routers;
  const seed = first!.meshAddress ?? "";
  const strangers = await Promise.all(
    misfits.map(([reason, flags]) => startStranger(`stranger-${reason}`, seed, flags)),
  );
  for (const [index, [reason]] of misfits.entries()) {
    const stranger = strangers[index]!;
    const deadlineMs = 15_000;
    await waitFor(async () => (await rejects(stranger, reason)) > 0, { what: `${reason} at the stranger`, deadlineMs });
    await waitFor(async () => (await rejects(first!, reason)) > 0, { what: `${reason} at the router`, deadlineMs });
    // A log comes by another way than metrics, and later.
    await expect
      .poll(() => stranger.log(), { timeout: deadlineMs })
      .toContainEqual(expect.objectContaining({ ...refusal, reason, msg: "refused by another router" }));
    await expect
      .poll(() => first!.log(), { timeout: deadlineMs })
      .toContainEqual(expect.objectContaining({ ...refusal, reason, msg: "router refused" }));
    await waitFor(async () => (await stranger.mesh()).waitingFor.length === 0, { what: "end of the wait for peers" });
    const { members } = await stranger.mesh();
    expect(members).toEqual([]);
    expect(JSON.stringify([stranger.log(), first!.log()])).not.toContain(secret);
  }
  await Promise.all(strangers.map((stranger) => stranger.kill()));
  await expectUnharmed(fleet);
});

test("old and new protocols, garbage and frames too large are refused by name and counted, and the mesh goes on", async () => {
  const [router] = fleet.routers;
  const address = router!.meshAddress ?? "";
  const random = createSeededRandom(4);

  for (const versions of [
    [0, 0],
    [2, 3],
  ] as const) {
    const peer = await dialRaw(address);
    peer.frame(helloFrame({ versions }));
    expect(readRejection(await peer.received(0))).toBe(`versions 1 to 1 here, ${versions.join(" to ")} there`);
    expect(await peer.ended).toEqual({ code: 4_000, reason: "protocol-version" });
  }
  await waitFor(async () => (await rejects(router!, "protocol-version")) === 2, { what: "count of refusals" });

  const invalid = [
    () => Uint8Array.of(),
    () => Uint8Array.from({ length: 100 }, () => random.integer(256)),
    () => helloFrame().subarray(0, 40),
    () => new Uint8Array(5_000).fill(1),
  ];
  for (const make of invalid) {
    const peer = await dialRaw(address);
    peer.frame(make());
    expect(await peer.ended).toEqual({ code: 4_000, reason: "handshake-invalid" });
  }
  const large = await dialRaw(address);
  large.frame(new Uint8Array(2_000_000));
  expect((await large.ended).code).toBe(1_009);
  const junk = await dialRaw(address);
  junk.write(Uint8Array.from({ length: 300 }, () => 0xff));
  expect((await junk.ended).code).toBe(1_002);
  const count = invalid.length + 2;
  await waitFor(async () => (await rejects(router!, "handshake-invalid")) === count, { what: "count of refusals" });

  for (const text of ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", "\0\0\0 no http at all\r\n\r\n"]) {
    const peer = await dialRaw(address, { upgrade: false });
    peer.write(text);
    await peer.ended;
  }
  await expectUnharmed(fleet);
});

test("a router that knows the secret and then sends garbage loses its link, and nobody else does", async () => {
  const [router] = fleet.routers;
  const address = router!.meshAddress ?? "";
  const counts = async () => {
    const page = await router!.metrics();
    return {
      ends: page.sum("espalier_mesh_links_closed_total", { reason: "frame-invalid" }),
      rejects: page.sum("espalier_mesh_rejects_total"),
    };
  };
  const before = await counts();
  const garbage = [
    Uint8Array.of(6, 2, 0xff, 0xff, 0xff, 0xff),
    Uint8Array.of(6, 9, 1, 2, 3),
    Uint8Array.of(99),
    new Uint8Array(1_200_000).fill(6),
  ];
  for (const frame of garbage) {
    const peer = await dialRaw(address);
    const hello = helloFrame();
    peer.frame(hello);
    peer.frame(proofFrame(secret, hello, await peer.received(0)));
    await peer.received(2);
    peer.frame(acceptFrame);
    peer.frame(frame);
    await peer.ended;
  }
  await waitFor(async () => (await counts()).ends === before.ends + garbage.length, { what: "ends of links" });
  expect((await counts()).rejects).toBe(before.rejects);
  await expectUnharmed(fleet);
});
