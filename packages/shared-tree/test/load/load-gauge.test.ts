import { flags, struct, whole } from "@espalier/core";
import { expect, test } from "vitest";
import {
  gaugeFields,
  gaugeFlags,
  gaugeNames,
  idleGauge,
  isIdle,
  isSameGauge,
  type LoadGauge,
  pickGauge,
} from "../../src/load/load-gauge.ts";
import { LoadSums } from "../../src/load/load-sums.ts";

const sent = whole(struct({ flags: flags(gaugeFlags), ...gaugeFields }));

test.each(gaugeNames)("a gauge with %s alone is picked, compared, sent, read and summed with it", (name) => {
  const gauge: LoadGauge = { ...idleGauge, [name]: 7 };
  expect(pickGauge(gauge)).toEqual(gauge);
  expect([isSameGauge(gauge, idleGauge), isSameGauge(gauge, { ...gauge }), isIdle(gauge)]).toEqual([
    false,
    true,
    false,
  ]);

  expect(sent.decode(sent.encode(gauge))).toEqual(gauge);

  const sums = new LoadSums(2, () => 0);
  const by = { heardMs: 0, linkDelayMs: 0 };
  sums.add(1, gauge, by);
  expect(gaugeNames.map((each) => sums[each][1])).toEqual(gaugeNames.map((each) => gauge[each]));
  sums.replace(1, gauge, { ...gauge, [name]: 9 }, by);
  expect(sums[name][1]).toBe(9);
  sums.remove(1, { ...gauge, [name]: 9 }, by);
  expect(gaugeNames.map((each) => sums[each][1])).toEqual(gaugeNames.map(() => 0));
});
