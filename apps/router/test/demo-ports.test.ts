import { expect, test } from "vitest";
import { type DemoFlags, readDemoOptions } from "../src/demo/demo-options.ts";

const flags: DemoFlags = {
  engines: "4",
  routers: "1",
  sharing: "mesh",
  policy: "least_work",
  preset: "h100-32b-tp2",
  port: "8080",
  adminPort: "9090",
  envoyPort: "10000",
  load: "0",
};

// Symptom: `--engine URL --port 65000` was refused for want of ports of engines that are never started.
test("engines of one's own need no ports above the router's", () => {
  const given = { ...flags, engine: ["http://127.0.0.1:8000"], port: "65535" };
  expect(readDemoOptions(given)).toMatchObject({ engineUrls: ["http://127.0.0.1:8000"], port: 65_535 });
  expect(() => readDemoOptions({ ...given, engine: undefined } as never)).toThrow(
    "--port leaves no ports for the engines, 1000 above it",
  );
});

// Symptom: the first routers and all engines were started before the one that had no port failed.
test.each([
  { given: { engine: ["http://a"], port: "65535", routers: "1" }, refused: undefined },
  { given: { engine: ["http://a"], port: "65535", routers: "2" }, refused: "--port leaves no ports for the routers" },
  { given: { engine: ["http://a"], port: "65520", routers: "16" }, refused: undefined },
  { given: { adminPort: "65535", routers: "1" }, refused: undefined },
  { given: { adminPort: "65535", routers: "2" }, refused: "--admin-port leaves no ports for the routers" },
  { given: { adminPort: "65520", routers: "16" }, refused: undefined },
  { given: { adminPort: "65521", routers: "16" }, refused: "--admin-port leaves no ports for the routers" },
  { given: { port: "64280", engines: "256" }, refused: undefined },
  { given: { port: "64281", engines: "256" }, refused: "--port leaves no ports for the engines, 1000 above it" },
  { given: { port: "0", adminPort: "0", routers: "16", engines: "256" }, refused: undefined },
])("ports for all, or a refusal before anything is started: $given", ({ given, refused }) => {
  const read = () => readDemoOptions({ ...flags, ...given });
  if (refused === undefined) expect(read()).toMatchObject({ routers: Number(given.routers ?? 1) });
  else expect(read).toThrow(refused);
});

test.each([
  { given: { load: "0" }, read: { requestsPerSecond: 0, durationMs: undefined } },
  { given: { load: "0.25", duration: "1.5m" }, read: { requestsPerSecond: 0.25, durationMs: 90_000 } },
  { given: { load: "10000", duration: "500ms" }, read: { requestsPerSecond: 10_000, durationMs: 500 } },
  { given: { model: "org/model" }, read: { model: "org/model" } },
  { given: { envoyBin: "/usr/bin/envoy", envoyPort: "0" }, read: { envoy: undefined } },
  { given: { envoy: true }, read: { envoy: { port: 10_000, program: undefined, cacheFolder: undefined } } },
  {
    given: { envoy: true, envoyPort: "0", envoyBin: "/usr/bin/envoy", envoyCache: "/tmp" },
    read: { envoy: { port: 0, program: "/usr/bin/envoy", cacheFolder: "/tmp" } },
  },
])("$given is read as $read", ({ given, read }) => {
  expect(readDemoOptions({ ...flags, ...given })).toMatchObject(read);
});

test("Envoy gets engines by IP address, as routers name them", () => {
  const read = (...engine: string[]) => readDemoOptions({ ...flags, envoy: true, engine });
  expect(read("http://10.0.0.1:8000", "http://[::1]")).toMatchObject({
    envoy: { port: 10_000 },
  });
  for (const wrong of [
    "http://engine-1:8000",
    "http://localhost:8000",
    "https://10.0.0.1:8000",
    "http://10.0.0.1/v1",
    "10.0.0.1:8000",
    "?",
  ])
    expect(() => read("http://10.0.0.1:8000", wrong)).toThrow(`by IP address, not "${wrong}"`);
  expect(() => readDemoOptions({ ...flags, envoyPort: "65536" })).toThrow("--envoy-port must be a whole number from 0");
});
