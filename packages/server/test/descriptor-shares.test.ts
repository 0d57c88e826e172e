import { expect, test } from "vitest";
import { shareDescriptors } from "../src/lifecycle/listener.ts";

test.each([512, 1_024, 65_536])("of %i descriptors some are left when every share is taken", (openFiles) => {
  const { clients, rejected, requests, operators } = shareDescriptors(openFiles);
  const left = openFiles - clients - rejected - requests - operators;
  expect(left).toBeGreaterThanOrEqual(100 + 0.1 * (openFiles - 100));
  expect(Math.min(clients, rejected, requests, operators)).toBeGreaterThan(10);
});

test("where they are not bounded nothing is", () => {
  expect(shareDescriptors(Number.POSITIVE_INFINITY).clients).toBe(Number.POSITIVE_INFINITY);
});
