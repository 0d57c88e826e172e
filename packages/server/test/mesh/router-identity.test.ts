import { hostname, networkInterfaces } from "node:os";
import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { advertisedHost, routerIdOf } from "../../src/mesh/mesh-parts.ts";

describe("a router's id", () => {
  test("is the one that is configured", () => {
    expect(routerIdOf({ routerId: "mine", port: 7_946 }, createSeededRandom(1))).toBe("mine");
  });

  test("else host name and port, the same after every start", () => {
    const idOf = (seed: number) => routerIdOf({ routerId: undefined, port: 7_946 }, createSeededRandom(seed));
    expect(idOf(1)).toMatch(/^[A-Za-z0-9._-]{1,96}-7946$/);
    expect(idOf(2)).toBe(idOf(1));
    expect(idOf(1)).toContain(
      hostname()
        .replaceAll(/[^A-Za-z0-9._-]/g, "-")
        .slice(0, 96),
    );
  });

  test("with a free port something random, so that routers on one host differ", () => {
    const idOf = (seed: number) => routerIdOf({ routerId: undefined, port: 0 }, createSeededRandom(seed));
    expect(idOf(1)).not.toBe(idOf(2));
    expect(idOf(1)).toMatch(/-[0-9a-z]{1,7}$/);
  });
});

test.each([
  ["127.0.0.1", "127.0.0.1"],
  ["router-1.internal", "router-1.internal"],
  ["::1", "[::1]"],
  ["fd00::5", "[fd00::5]"],
])("others dial a router that listens on %s at %s", (host, dialled) => {
  expect(advertisedHost(host)).toBe(dialled);
});

test("a router that listens on all addresses is dialled at one of this machine", () => {
  const own = Object.values(networkInterfaces()).flatMap((list) => (list ?? []).map(({ address }) => address));
  expect([...own, "127.0.0.1"]).toContain(advertisedHost("0.0.0.0"));
  expect([...own, "::1"].map((address) => `[${address}]`)).toContain(advertisedHost("::"));
});
