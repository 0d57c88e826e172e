import { createSeededRandom } from "@espalier/core";
import { type DnsServer, startDnsServer, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createHostLookup, createPeerDnsSource } from "../../../src/discovery/index.ts";
import { createPeerRecorder } from "../helpers.ts";

async function startServer(): Promise<DnsServer> {
  const server = await startDnsServer();
  onTestFinished(() => server.stop());
  return server;
}

test("SRV records are routers at their ports; they come and go with the records, and a failure keeps them", async () => {
  const dns = await startServer();
  const name = "_mesh._tcp.routers.test";
  dns.set("r1.test", { a: ["10.0.0.1"] });
  dns.set("r2.test", { aaaa: ["fd00::2"] });
  const records = (...ports: readonly number[]) =>
    dns.set(name, { srv: ports.map((port) => ({ name: `r${port % 10}.test`, port })) });
  records(7_001, 7_002);
  const recorder = createPeerRecorder();
  const source = createPeerDnsSource({
    ...{ name, port: undefined, family: "auto", intervalMs: 20, misses: 1, servers: [dns.address] },
    random: createSeededRandom(1),
  });
  onTestFinished(() => source.stop());
  const until = (list: string) => waitFor(() => recorder.lists.at(-1) === list, { what: list });
  await source.start(recorder);
  expect(source.name).toBe(`dns ${name}`);
  expect(recorder.lists).toEqual(["", "10.0.0.1:7001 [fd00::2]:7002"]);
  records(7_002, 8_001);
  await until("10.0.0.1:8001 [fd00::2]:7002");
  dns.mode = "fail";
  await waitFor(() => recorder.errors.length === 1, { what: "failure" });
  records();
  dns.mode = "answer";
  await waitFor(() => recorder.errors.length === 2, { what: "an answer without addresses" });
  expect(recorder.errors.map(({ message }) => message.includes("last list stays in use"))).toEqual([true, true]);
  expect(recorder.recoveries).toBe(0);
  records(7_001);
  await until("10.0.0.1:7001");
  expect(recorder.recoveries).toBe(1);
});

test("a host is looked up at the name servers that are given; without addresses, or an answer, that is a failure", async () => {
  const dns = await startServer();
  const lookUp = createHostLookup([dns.address]);
  dns.set("both.test", { a: ["10.0.0.1", "10.0.0.2"], aaaa: ["fd00::1"] });
  dns.set("six.test", { aaaa: ["fd00::1"] });
  dns.set("none.test", {});
  expect([...(await lookUp("both.test"))].sort()).toEqual(["10.0.0.1", "10.0.0.2"]);
  expect(await lookUp("six.test")).toEqual(["fd00::1"]);
  await expect(lookUp("none.test")).rejects.toThrow("none.test has no addresses");
  await expect(lookUp("absent.test")).rejects.toThrow("absent.test has no addresses");
  dns.mode = "fail";
  await expect(lookUp("both.test")).rejects.toThrow(/ESERVFAIL/);
});
