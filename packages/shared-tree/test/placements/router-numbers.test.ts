import { asRouterId } from "@espalier/core";
import { expect, test } from "vitest";
import { createRouterNumbers, maxNumberedRouters } from "../../src/placements/placement-reader.ts";

const router = (at: number) => asRouterId(`router-${at}`);

test("a router keeps its number, from 1 on, and is found by it", () => {
  const numbers = createRouterNumbers();
  expect([0, 1, 0, 2].map((at) => numbers.numberOf(router(at)))).toEqual([1, 2, 1, 3]);
  expect([1, 2, 3].map((number) => numbers.routerOf(number))).toEqual([router(0), router(1), router(2)]);
  for (const number of [0, 4, -1, 1e9]) expect(numbers.routerOf(number)).toBeUndefined();
});

test("one router past the bound has a number, but nobody's", () => {
  const numbers = createRouterNumbers();
  for (let at = 0; at < maxNumberedRouters; at++) numbers.numberOf(router(at));
  expect(numbers.routerOf(maxNumberedRouters)).toBe(router(maxNumberedRouters - 1));
  const beyond = numbers.numberOf(router(maxNumberedRouters));
  expect(numbers.numberOf(router(maxNumberedRouters + 1))).toBe(beyond);
  expect(numbers.routerOf(beyond)).toBeUndefined();
  expect(numbers.numberOf(router(0))).toBe(1);
});
