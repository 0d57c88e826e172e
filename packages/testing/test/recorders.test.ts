import { createSeriesMeter } from "@espalier/testing";
import { expect, test } from "vitest";

test("what is counted and set can be read by name and labels; what was never used is undefined", () => {
  const meter = createSeriesMeter();
  const requests = meter.counter("requests", "Requests.", ["model"]);
  requests.series("m").add();
  requests.series("m").add(2);
  requests.series("n").add(5);
  meter.gauge("size", "Size.").series().set(7);
  meter.gauge("size", "Size.").series().set(6);
  expect([meter.value("requests", "m"), meter.value("requests", "n"), meter.value("size")]).toEqual([3, 5, 6]);
  expect([meter.value("requests"), meter.value("requests", "o"), meter.value("other")]).toEqual(
    Array.from({ length: 3 }, () => undefined),
  );
});

test("a series that is removed begins anew", () => {
  const meter = createSeriesMeter();
  const requests = meter.counter("requests", "Requests.", ["model"]);
  requests.series("m").add(3);
  requests.forget("model", "m");
  expect(meter.value("requests", "m")).toBeUndefined();
  requests.series("m").add();
  expect(meter.value("requests", "m")).toBe(1);
});

test("what is observed has no value", () => {
  const meter = createSeriesMeter();
  meter.histogram("wait_seconds", "Waits.", [1]).series().observe(3);
  expect(meter.value("wait_seconds")).toBeUndefined();
});
