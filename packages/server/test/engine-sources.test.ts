import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createSeededRandom, type EngineSpec, silentLogger, systemScheduler } from "@espalier/common";
import { loadConfig } from "@espalier/config";
import { createMetrics } from "@espalier/telemetry";
import { createKubernetesApi, startDnsServer, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createEngineSources } from "../src/lifecycle/engine-sources.ts";
import { createLocalTable } from "../src/lifecycle/operator-engines.ts";

const read = (sections: object) => loadConfig({ file: { path: "espalier.yaml", text: JSON.stringify(sections) } });

/** A router's sources, and what they tell its fleet. */
async function start(sections: object) {
  const applied: (readonly EngineSpec[])[] = [];
  const { meter, render } = createMetrics({ processMetrics: false });
  const sources = createEngineSources({
    ...{ config: read(sections), table: createLocalTable(), logger: silentLogger, meter },
    ...{ scheduler: systemScheduler, random: createSeededRandom(1) },
    fleet: {
      apply(specs) {
        applied.push(specs);
        return { added: [], changed: [], removed: [], refused: [] };
      },
    },
  });
  onTestFinished(() => sources.stop());
  await sources.start();
  return {
    sources,
    follow: (next: object) => sources.follow(read(next)),
    lists: () => applied.map((specs) => specs.map(({ id }) => id).join(" ")),
    now: () => applied.at(-1)!,
    /** Sources that there are figures of, and whether they are up. */
    async reported() {
      const { body } = await render();
      return [...body.matchAll(/^espalier_discovery_source_up\{source="(.*)"\} (\d)$/gm)].map(
        ([, name, value]) => `${name}: ${value}`,
      );
    },
  };
}

async function startNames() {
  const server = await startDnsServer();
  onTestFinished(() => server.stop());
  const name = (text: string, options: object = {}) => ({
    name: text,
    servers: [server.address],
    interval: "100ms",
    ...options,
  });
  return { server, name };
}

/** A Kubernetes API on a free port, which knows one endpoint of a service. */
async function startApi(address: string) {
  const api = createKubernetesApi();
  api.put("/apis/discovery.k8s.io/v1/namespaces/ai/endpointslices", {
    metadata: { name: "vllm-a", labels: { "kubernetes.io/service-name": "vllm" } },
    ...{ addressType: "IPv4", ports: [{ name: "http", port: 8_000 }], endpoints: [{ addresses: [address] }] },
  });
  const server = createServer(({ url = "", headers }, response) => {
    const gone = api.answer(url, headers, {
      head(status, given) {
        response.writeHead(status, given);
        response.flushHeaders();
      },
      data: (text) => void response.write(text),
      end: () => void response.end(),
      drop: () => response.socket?.resetAndDestroy(),
    });
    response.on("close", gone).on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, watchers: () => api.watches.size };
}

test("engines of the list come and go; a reload of something else tells the fleet nothing", async () => {
  const { follow, lists } = await start({ engines: ["http://a:1"] });
  await follow({ engines: ["http://a:1", "http://b:1"] });
  await follow({ engines: ["http://a:1", "http://b:1"], policy: "random" });
  await follow({ engines: ["http://b:1"] });
  expect(lists()).toEqual(["a:1", "a:1 b:1", "b:1"]);
});

test("a name that is said as before is asked for by the same source, a name said otherwise by another", async () => {
  const { server, name } = await startNames();
  server.set("x.test", { a: ["10.0.0.1"] });
  server.set("y.test", { a: ["10.0.0.2"] });
  const { follow, lists, now, reported } = await start({ discovery: { dns: [name("x.test:80", { misses: 100 })] } });
  server.set("x.test", { a: [] });
  await follow({ discovery: { dns: [name("y.test:80"), name("x.test:80", { misses: 100 })] } });
  // A new source would have found no address.
  expect(lists()).toEqual(["10.0.0.1:80", "10.0.0.2:80 10.0.0.1:80"]);
  expect(await reported()).toContain("dns y.test:80: 1");

  server.mode = "fail";
  await follow({ discovery: { dns: [name("y.test:80", { weight: 3 })] } });
  expect(lists().at(-1)).toBe("10.0.0.2:80");
  expect(now()[0]?.weight).toBe(1);
  expect((await reported()).sort()).toEqual(["dns y.test:80: 0", "operators: 1", "the configuration: 1"]);
  server.mode = "answer";
  await waitFor(() => now()[0]?.weight === 3, { what: "what the name says again, with its new weight" });

  await follow({});
  expect(lists().at(-1)).toBe("");
  expect((await reported()).sort()).toEqual(["operators: 1", "the configuration: 1"]);
});

test("another API server is asked in place of the first, with connections of its own", async () => {
  const apis = await Promise.all(["10.0.0.1", "10.0.0.2"].map(startApi));
  const at = (index: number) => ({
    discovery: { services: ["ai/vllm:8000"], kubernetes: { "api-server": apis[index]!.url } },
  });
  const { follow, lists, sources } = await start(at(0));
  await follow(at(1));
  expect(lists()).toEqual(["10.0.0.1:8000", "10.0.0.2:8000"]);
  await waitFor(() => apis[0]!.watchers() === 0, { what: "the end of the first server's watch" });
  await sources.stop();
  await waitFor(() => apis[1]!.watchers() === 0, { what: "the end of the second one's" });
});
