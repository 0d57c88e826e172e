import { type FlagValues, loadConfig } from "@espalier/server";
import { expect, test } from "vitest";
import { memberConfig } from "../../src/processes/group-member.ts";

const place = { index: 2, seeds: ["127.0.0.1:7001"], meshSecret: "known to the group", isServing: false };
const configOf = (flags: FlagValues) => memberConfig(loadConfig({ flags }), place);

test("admin ports count up, the clients' port is one, and free ports stay free", () => {
  const { admin, listen } = configOf({ "--admin-port": "9100", "--listen-port": "8000" });
  expect([admin.port, listen.port]).toEqual([9_102, 8_000]);
  expect(configOf({ "--admin-port": "0" }).admin.port).toBe(0);
});

test("processes that share with nobody else share with each other, on loopback and with a secret", () => {
  const { mesh } = configOf({});
  expect(mesh).toMatchObject({
    ...{ backend: "peers", routerId: "process-3", host: "127.0.0.1", port: 0, advertise: undefined, tls: undefined },
    seeds: ["127.0.0.1:7001"],
  });
  expect(mesh.secret?.reveal()).toBe("known to the group");
  expect(configOf({ "--mesh-backend": "off", "--mesh-router-id": "a" }).mesh.routerId).toBe("a-3");
});

test("in a mesh with other machines each process is a member of its own", () => {
  const { mesh } = configOf({
    "--mesh-port": "7946",
    "--mesh-host": "0.0.0.0",
    "--mesh-advertise": "[::1]:7946",
    "--mesh-seed": ["b:7946"],
    "--mesh-secret": "secret of the operators",
    "--mesh-router-id": "machine-a",
  });
  expect(mesh).toMatchObject({
    ...{ backend: "peers", routerId: "machine-a-3", host: "0.0.0.0", port: 7_948, advertise: "[::1]:7948" },
    seeds: ["b:7946", "127.0.0.1:7001"],
  });
  expect(mesh.secret?.reveal()).toBe("secret of the operators");
});

test("what finds other machines is left to each of those that share with them, and to nobody else", () => {
  const flags = { "--mesh-seed": ["_mesh._tcp.routers.example"], "--mesh-seeds-file": "/s.yaml" };
  expect(configOf(flags).mesh).toMatchObject({
    seeds: ["127.0.0.1:7001"],
    ...{ seedRecords: ["_mesh._tcp.routers.example"], seedsFile: "/s.yaml" },
  });
  const alone = configOf({ ...flags, "--mesh-backend": "off", "--mesh-seed-service": ["peers"] }).mesh;
  const nobody = { seedRecords: [], seedServers: [], seedsFile: undefined, seedServices: [], seedPods: [] };
  expect(alone).toMatchObject(nobody);
});

test.each([
  ["http://localhost:9091", "http://localhost:9093"],
  ["https://localhost", "https://localhost:445"],
  ["http://[::1]", "http://[::1]:82"],
])("what browsers reach counts up from %s", (first, third) => {
  expect(configOf({ "--admin-advertise": first }).admin.advertise).toBe(third);
});

test("a name that the port makes is left to the port", () => {
  const { mesh } = configOf({ "--mesh-port": "7946" });
  expect([mesh.routerId, mesh.port]).toEqual([undefined, 7_948]);
});

test("through Redis each process is a member of its own too", () => {
  const { mesh } = configOf({ "--mesh-redis-url": "redis://r", "--mesh-router-id": "a" });
  expect(mesh).toMatchObject({ backend: "redis", routerId: "a-3" });
  expect(mesh.redisUrl?.reveal()).toBe("redis://r");
});
