import { startDnsServer, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createDnsSource, type DnsSourceOptions } from "../../../src/discovery/index.ts";
import { createRecorder, plainTraits, type Recorder } from "../helpers.ts";

async function follow(options: Partial<DnsSourceOptions>) {
  const server = await startDnsServer();
  onTestFinished(() => server.stop());
  const recorder = createRecorder();
  const source = createDnsSource({
    ...{ name: "engines.test", port: 8_000, family: "auto", intervalMs: 20, misses: 2, servers: [server.address] },
    ...{ traits: plainTraits, ...options },
  });
  onTestFinished(() => source.stop());
  return { server, recorder, start: () => source.start(recorder) };
}

const becomes = (recorder: Recorder, list: string) =>
  waitFor(() => recorder.lists.at(-1) === list, { what: `list ${list}` });

test("a real name server: addresses join and leave, the server fails and comes back", async () => {
  const { server, recorder, start } = await follow({});
  server.set("engines.test", { a: ["10.0.0.1"] });
  await start();
  expect(recorder.lists).toEqual(["", "10.0.0.1:8000"]);
  server.set("engines.test", { a: ["10.0.0.1", "10.0.0.2"] });
  await becomes(recorder, "10.0.0.1:8000 10.0.0.2:8000");
  server.set("engines.test", { a: ["10.0.0.2"] });
  await becomes(recorder, "10.0.0.2:8000");

  server.mode = "fail";
  await waitFor(() => recorder.errors.length > 0, { what: "failure" });
  server.mode = "answer";
  await waitFor(() => recorder.recoveries > 0, { what: "recovery" });
  server.set("engines.test", undefined);
  await waitFor(() => recorder.errors.length > 1, { what: "failure" });
  expect(recorder.errors.at(-1)?.message).toContain("the name has no addresses");
  expect(recorder.lists.at(-1)).toBe("10.0.0.2:8000");
});

test("a name that lacks both families, one that has IPv6 alone, and SRV records", async () => {
  const { server, recorder, start } = await follow({ name: "_http._tcp.engines.test", port: undefined });
  server.set("_http._tcp.engines.test", {
    srv: [
      { name: "a.engines.test", port: 8_001 },
      { name: "b.engines.test", port: 8_002 },
      { name: "gone.engines.test", port: 8_003 },
    ],
  });
  server.set("a.engines.test", { a: ["10.0.0.1"], aaaa: ["fd00::1"] });
  server.set("b.engines.test", { aaaa: ["fd00::2"] });
  await start();
  expect(recorder.lists.at(-1)).toBe("10.0.0.1:8001 [fd00::2]:8002");
  expect(recorder.errors).toEqual([]);
});

test("an answer too long for a datagram is whole", async () => {
  const { server, recorder, start } = await follow({});
  server.set("engines.test", { a: Array.from({ length: 1_000 }, (_, at) => `10.0.${at >> 8}.${at & 255}`) });
  await start();
  expect(recorder.specs.at(-1)).toHaveLength(1_000);
  expect(server.tcpCount).toBeGreaterThan(0);
});

test("without name servers of its own a source asks as the system does", async () => {
  const { recorder, start } = await follow({ name: "localhost", servers: [], family: "ipv4" });
  await start();
  expect(recorder.lists.at(-1)).toBe("127.0.0.1:8000");
});
