import { createSeededRandom } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { createDialList, formatAddress, parseSeed } from "../../src/seeds/seeds.ts";

test.each(fixedSeeds(20))(
  "an address is dialed while anybody wants it, and forgotten once when nobody does (seed %d)",
  (seed) => {
    const random = createSeededRandom(seed);
    const dialed = new Set<string>();
    const forgotten: string[] = [];
    const list = createDialList({
      dial: (address) => void dialed.add(address),
      forget(address) {
        forgotten.push(address);
        expect(dialed.delete(address)).toBe(true);
      },
    });
    const users = Array.from({ length: 3 }, () => ({ user: list.user(), addresses: new Set<string>() }));
    for (let step = 0; step < 300; step++) {
      const { user, addresses } = users[random.integer(users.length)]!;
      const address = `host-${random.integer(5)}:1`;
      if (random.integer(2) === 0) {
        user.dial(address);
        addresses.add(address);
      } else {
        const before = forgotten.length;
        const isLast =
          addresses.has(address) &&
          users.every((other) => other.addresses === addresses || !other.addresses.has(address));
        user.forget(address);
        addresses.delete(address);
        expect(forgotten.length - before).toBe(isLast ? 1 : 0);
      }
      expect([...dialed].sort()).toEqual([...new Set(users.flatMap((one) => [...one.addresses]))].sort());
    }
  },
);

describe("a seed", () => {
  test.each([
    ["router-1:7000", { host: "router-1", port: 7_000, isName: true }, "router-1:7000"],
    ["10.0.0.1:1", { host: "10.0.0.1", port: 1, isName: false }, "10.0.0.1:1"],
    ["[::1]:65535", { host: "::1", port: 65_535, isName: false }, "[::1]:65535"],
    ["300.1.1.1:80", { host: "300.1.1.1", port: 80, isName: true }, "300.1.1.1:80"],
    ["host:00080", { host: "host", port: 80, isName: true }, "host:80"],
  ])("%j is read and dialed in one form", (text, address, dialed) => {
    expect(parseSeed(text)).toEqual(address);
    expect(formatAddress(address.host, address.port)).toBe(dialed);
  });

  test.each([
    "",
    "host",
    ":80",
    "host:",
    "host:0",
    "host:65536",
    "host:-1",
    "host:8o",
    "host:000080",
    "::1:80",
    "[host]:80",
    "[::1]",
    "[10.0.0.1]:80",
    "a b:80",
    "host/path:80",
    "http://host:80",
    "host:80 ",
  ])("is not %j", (text) => {
    expect(() => parseSeed(text)).toThrow(RangeError);
  });
});
