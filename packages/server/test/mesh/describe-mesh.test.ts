import type { Backend } from "@espalier/mesh";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { describeMesh } from "../../src/mesh/describe-mesh.ts";
import { configOf, createLoneReplica } from "./mesh-rig.ts";

// Symptom: a frame with absurd gauges of a router that was gone again stood in `/admin/mesh` for ten minutes. Mechanism: what is
// remembered of routers that went silent was listed like that of those whose leases run.
test("load is listed while its lease runs, and again once it is heard again", async () => {
  const time = createVirtualTime();
  const [here, there] = [createLoneReplica(time), createLoneReplica(time, "r2")];
  const { load: peer } = there.replica.ports;
  const backend = {
    describe: () => ({ kind: "mesh", address: null, waitingFor: [], members: [], refused: [] }),
  } as unknown as Backend;
  const listed = (): number[] => {
    const parts = {
      config: configOf({ backend: "peers" }),
      replica: here.replica,
      backend,
      watch: { releaseOf: () => ({ version: null, settings: null, differs: [] }), lost: () => [] },
    };
    return describeMesh(parts).load.map(({ inFlight }) => inFlight);
  };
  const absurd = {
    inFlight: 2 ** 40,
    pendingPrefillTokens: 0,
    decodeTokens: 0,
    pendingWorkMs: 0,
    activeTokens: 0,
    lendingTokens: 0,
    yieldingInFlight: 0,
    answers: 0,
  };
  await here.replica.start();
  there.replica.load.set("engine", absurd);
  here.replica.ports.load.receive(peer.fullFrames()[0]!);
  expect(listed()).toEqual([2 ** 40]);
  time.advance(1_500);
  expect(listed()).toEqual([]);
  time.advance(10_000);
  expect(listed()).toEqual([]);
  here.replica.ports.load.receive(peer.fullFrames()[0]!);
  expect(listed()).toEqual([2 ** 40]);
  await here.replica.stop();
});
