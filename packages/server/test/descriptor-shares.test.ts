import { expect, test } from "vitest";
import { maxEventSockets, shareDescriptors } from "../src/lifecycle/descriptors.ts";

/** Of an event socket: 3 of ZeroMQ, and a connection. */
const filesOfSocket = 4;

/*
 * Event sockets took files that were also shared out to clients and requests: a router of many feeds took its engines for
 * unreachable.
 */
test.each(
  [512, 1_024, 20_000, 65_536].flatMap((openFiles) => [
    [openFiles, 0],
    [openFiles, 10],
    [openFiles, Math.min(4_096, maxEventSockets(openFiles))],
  ]),
)("of %i descriptors some are left when %i event sockets are open and every share is taken", (openFiles, sockets) => {
  const eventFiles = filesOfSocket * sockets;
  const { clients, rejected, requests, operators } = shareDescriptors(openFiles, () => eventFiles);
  const left = openFiles - eventFiles - clients - rejected - requests - operators;
  expect(left).toBeGreaterThanOrEqual(100 + 0.1 * (openFiles - eventFiles - 100));
  expect(Math.min(clients, rejected, requests, operators)).toBeGreaterThanOrEqual(10);
});

test.each([
  [512, 51],
  [1_024, 115],
  [20_000, 4_225],
  [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY],
])("of %i descriptors event sockets get half, and all but 3,000 where there are more: %i sockets", (files, sockets) => {
  expect(maxEventSockets(files)).toBe(sockets);
});

test("where they are not bounded nothing is", () => {
  expect(shareDescriptors(Number.POSITIVE_INFINITY, () => 16_384).clients).toBe(Number.POSITIVE_INFINITY);
});
