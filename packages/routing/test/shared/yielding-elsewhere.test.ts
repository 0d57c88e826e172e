// A router that dies while a request that yields is in flight tells nobody that it has ended.

import { silentMeter } from "@espalier/core";
import { expect, test } from "vitest";
import {
  createAdmission,
  createAdmissionMeters,
  defaultAdmissionSettings,
  noFleetUsage,
} from "../../src/admission/index.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";
import { TierCluster } from "./tier-rig.ts";

test("a class partition ends with the lease of a router that died with the last request that yields", async () => {
  const cluster = new TierCluster();
  const { clock, scheduler } = cluster.time;
  const [a, b] = [cluster.add("a"), cluster.add("b")];
  await Promise.all([a.tier.start(), b.tier.start()]);
  const at = ({ tier, indexOf }: typeof a) =>
    ["x", "y"].map((key) => {
      const target: ScriptedTarget = scriptedTarget(indexOf(key), key, {
        clock,
        onLoad: () => tier.publisher.changed(target),
      });
      return target;
    });
  const targets = at(b);
  const admission = createAdmission<ScriptedTarget>({
    ...{ settings: defaultAdmissionSettings, clock, scheduler, meters: createAdmissionMeters(silentMeter) },
    ...{ others: b.tier.load, fleet: noFleetUsage },
  });
  const open = (className: string): number => {
    let count = 0;
    const request = { tenant: "", promptTokens: 100, expectedOutputTokens: 10, sizeBytes: 1, deadlineMs: undefined };
    const admitted = (found: readonly ScriptedTarget[]): void => {
      count = found.length;
    };
    admission.enter(
      { ...request, className, onlyEngine: undefined },
      { targets: () => targets, admitted, refused() {} },
    );
    return count;
  };
  cluster.until(() => b.tier.backend.members().some(({ state }) => state === "alive"));
  open("batch");
  expect(open("interactive")).toBe(2);
  at(a)[0]!.load.begin({ promptTokens: 100, expectedOutputTokens: 10, yields: true });
  cluster.until(() => open("interactive") === 1, 1_000);
  cluster.network.kill("127.0.0.1:7000");
  expect(cluster.until(() => open("interactive") === 2)).toBeLessThanOrEqual(2_000);
  await Promise.all([a.tier.stop(), b.tier.stop()]);
});
