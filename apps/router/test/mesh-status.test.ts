import { expect, test } from "vitest";
import { describeMesh, type MeshStatus, registerStatus } from "../src/commands/status.ts";
import { runCommand } from "./run-command.ts";
import { temporaryServer } from "./temporary.ts";

const member = {
  router: "router-2",
  epoch: 1_700_000_000_002,
  state: "alive",
  isDraining: false,
  address: "10.0.0.2:7946",
  isLinked: true,
  roundTripMs: 0.456,
  lagMs: 12.34,
  sentBytesPerS: 1_234.6,
  receivedBytesPerS: 99.4,
  bufferedBytes: 0,
};

const mesh: MeshStatus = {
  backend: "peers",
  router: "router-1",
  epoch: 1_700_000_000_001,
  address: "10.0.0.1:7946",
  members: [member],
  feeds: { owned: 3, backup: 2, unread: 1 },
  facts: { targets: 6, blocks: 12_345, settled: 5, digest: "00112233445566ff" },
  journals: { count: 4, bytes: 98_765 },
};

const status = { ready: true, reasons: [], draining: false, inFlight: 0, engines: 1, usableEngines: 1, models: ["m"] };

async function statusWith(given: MeshStatus | null, ...more: readonly string[]) {
  const admin = await temporaryServer(({ response }) => response.end(JSON.stringify({ ...status, mesh: given })));
  return runCommand(registerStatus, "status", "--admin", admin, ...more);
}

const rowOf = (change: Partial<typeof member>): string[] => {
  const line =
    describeMesh({ ...mesh, members: [{ ...member, ...change }] })
      .trimEnd()
      .split("\n")
      .at(-1) ?? "";
  return line.split(/ {2,}/).map((cell) => cell.trim());
};

test("a router's place among the others: itself, its feeds, its facts, its journals", () => {
  expect(describeMesh(mesh).split("\n").slice(0, 5)).toEqual([
    "mesh      router-1, epoch 1700000000001, by peers at 10.0.0.1:7946",
    "feeds     3 read here, 2 followed as backup, 1 unread",
    "facts     12345 blocks of 6 targets, 5 settled, digest 00112233445566ff",
    "journals  4, 98765 B",
    "",
  ]);
});

test("by way of Redis it has no address", () => {
  const text = describeMesh({ ...mesh, backend: "redis", address: null });
  expect(text.split("\n")[0]).toBe("mesh      router-1, epoch 1700000000001, by redis");
});

test("a line for each other router, its columns named", () => {
  const lines = describeMesh({ ...mesh, members: [member, { ...member, router: "router-3" }] })
    .trimEnd()
    .split("\n");
  expect(lines[5]?.split(/ {2,}/)).toEqual([
    ...["router", "state", "address", "linked", "round trip (ms)", "lag (ms)"],
    ...["sent (B/s)", "received (B/s)", "waiting (B)"],
  ]);
  expect(lines.slice(6).map((line) => line.split(" ")[0])).toEqual(["router-2", "router-3"]);
});

test.each<[string, Partial<typeof member>, string[]]>([
  ["linked", {}, ["router-2", "alive", "10.0.0.2:7946", "yes", "0.46", "12.3", "1235", "99", "0"]],
  [
    "that drains",
    { isDraining: true },
    ["router-2", "alive, draining", "10.0.0.2:7946", "yes", "0.46", "12.3", "1235", "99", "0"],
  ],
  [
    "that is down, of which little is known",
    { state: "down", isLinked: false, address: null as never, roundTripMs: null as never, lagMs: null as never },
    ["router-2", "down", "-", "no", "-", "-", "1235", "99", "0"],
  ],
  [
    "that does not keep up",
    { bufferedBytes: 4_096, lagMs: 0 },
    ["router-2", "alive", "10.0.0.2:7946", "yes", "0.46", "0.0", "1235", "99", "4096"],
  ],
])("a router %s", (_, change, cells) => {
  expect(rowOf(change)).toEqual(cells);
});

test("no other router: a sentence", () => {
  expect(
    describeMesh({ ...mesh, members: [] })
      .split("\n")
      .at(-1),
  ).toBe("no other router");
});

test("`espalier status` shows it below the router's own state", async () => {
  const { stdout, exitCode } = await statusWith(mesh);
  expect(stdout.split("\n").slice(0, 6)).toEqual([
    ...["ready", "engines   1 of 1 usable", "models    m", "in flight 0", ""],
    "mesh      router-1, epoch 1700000000001, by peers at 10.0.0.1:7946",
  ]);
  expect(stdout).toContain("router-2");
  expect(exitCode).toBeUndefined();
});

test("a router that shares nothing has no such part", async () => {
  const { stdout } = await statusWith(null);
  expect(stdout).toBe("ready\nengines   1 of 1 usable\nmodels    m\nin flight 0\n");
});

test("as JSON it is all that the router told", async () => {
  const { stdout } = await statusWith(mesh, "--json");
  expect(JSON.parse(stdout)).toEqual({ ...status, mesh });
});
