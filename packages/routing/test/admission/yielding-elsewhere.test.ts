// A router that dies while a request that yields is in flight tells nobody that it has ended.

import { silentMeter } from "@espalier/core";
import { expect, test } from "vitest";
import { createAdmission } from "../../src/admission/admission.ts";
import { createAdmissionMeters } from "../../src/admission/admission-meters.ts";
import { noFleetUsage } from "../../src/admission/fair-share.ts";
import { defaultAdmissionSettings } from "../../src/admission/settings.ts";
import { type ScriptedTarget, scriptedTarget } from "../scripted-target.ts";
import { type PairedRouter, startPair } from "../tier-pair.ts";

test("a class partition ends with the lease of a router that died with the last request that yields", async () => {
  const { time, network, addresses, one: a, other: b, until } = await startPair();
  const { clock, scheduler } = time;
  const at = ({ publisher, indexOf }: PairedRouter) =>
    ["x", "y"].map((key) => {
      const target: ScriptedTarget = scriptedTarget(indexOf(key), key, {
        clock,
        onLoad: () => publisher.changed(target),
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
  until(() => b.tier.backend.members().some(({ state }) => state === "alive"));
  open("batch");
  expect(open("interactive")).toBe(2);
  at(a)[0]!.load.begin({ promptTokens: 100, expectedOutputTokens: 10, yields: true });
  until(() => open("interactive") === 1, 1_000);
  network.kill(addresses[0]!);
  expect(until(() => open("interactive") === 2)).toBeLessThanOrEqual(2_000);
});
