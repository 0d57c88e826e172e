import { Resolver } from "node:dns/promises";
import { type DnsServer, startDnsServer } from "@espalier/testing";
import { afterEach, expect, onTestFinished, test } from "vitest";

const servers: DnsServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

async function start() {
  const server = await startDnsServer();
  servers.push(server);
  const resolver = new Resolver({ timeout: 1_000, tries: 1 });
  resolver.setServers([server.address]);
  onTestFinished(() => resolver.cancel());
  return { server, resolver };
}

const codeOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    (value) => value,
    (error: NodeJS.ErrnoException) => error.code,
  );

test("the system's resolver reads every type of record", async () => {
  const { server, resolver } = await start();
  server.set("Engines.Example", {
    a: ["10.0.0.1", "10.0.0.2"],
    aaaa: ["fd00::1", "::1", "1:2:3:4:5:6:7:8"],
    srv: [{ name: "a.engines.example", port: 8_001 }],
  });
  expect(await resolver.resolve4("engines.example")).toEqual(["10.0.0.1", "10.0.0.2"]);
  expect(await resolver.resolve6("engines.example")).toEqual(["fd00::1", "::1", "1:2:3:4:5:6:7:8"]);
  expect(await resolver.resolveSrv("engines.example")).toMatchObject([{ name: "a.engines.example", port: 8_001 }]);
});

test("a name that does not exist, one without records of the type, and a failure are told apart", async () => {
  const { server, resolver } = await start();
  server.set("engines.example", { a: ["10.0.0.1"] });
  expect(await codeOf(resolver.resolve4("other.example"))).toBe("ENOTFOUND");
  expect(await codeOf(resolver.resolve6("engines.example"))).toBe("ENODATA");
  server.mode = "fail";
  expect(await codeOf(resolver.resolve4("engines.example"))).toBe("ESERVFAIL");
  server.mode = "silent";
  expect(await codeOf(resolver.resolve4("engines.example"))).toBe("ETIMEOUT");
  server.mode = "answer";
  server.set("engines.example", undefined);
  expect(await codeOf(resolver.resolve4("engines.example"))).toBe("ENOTFOUND");
});

test("what does not fit a datagram goes by TCP", async () => {
  const { server, resolver } = await start();
  const a = Array.from({ length: 1_000 }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
  server.set("engines.example", { a });
  expect((await resolver.resolve4("engines.example")).sort()).toEqual([...a].sort());
  expect(server.tcpCount).toBe(1);
});
