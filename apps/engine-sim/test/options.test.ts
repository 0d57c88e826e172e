import { createServer } from "node:net";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { expect, onTestFinished, test } from "vitest";
import { clientOf, startSim } from "./sim-client.ts";

test("engines of one process have their own ports, caches and seeds", async () => {
  const sim = await startEngineSim({ engines: 3, speed: 1_000, models: ["tiny"] });
  onTestFinished(() => sim.stop());
  expect(sim.engines.map(({ id }) => id)).toEqual(["engine-0", "engine-1", "engine-2"]);
  expect(new Set(sim.engines.map(({ url }) => url)).size).toBe(3);
  const [first, second] = sim.engines.map(({ url }) => clientOf(url, sim.stop));
  const body = { prompt: "z".repeat(400), max_tokens: 1 };
  await first?.post("/v1/completions", body);
  expect((await first?.state())?.stats.cachedBlocks).toBeGreaterThan(0);
  expect((await second?.state())?.stats).toMatchObject({ cachedBlocks: 0, promptTokens: 0 });
  expect((await second?.state())?.id).toBe("engine-1");
});

test("a fixed port counts up, and a taken one fails without leaving the others open", async () => {
  const blocker = createServer();
  await new Promise<void>((resolve) => blocker.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void blocker.close());
  const taken = (blocker.address() as { port: number }).port;
  const first = taken - 1;
  await expect(startEngineSim({ engines: 2, port: first })).rejects.toMatchObject({ code: "EADDRINUSE" });
  await expect(fetch(`http://127.0.0.1:${first}/health`)).rejects.toThrow();
});

test("stopping ends open streams and frees the port", async () => {
  const sim = await startSim({ speed: 1 });
  const stream = fetch(`${sim.url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify({ prompt: "a", max_tokens: 4_000, stream: true }),
  });
  const response = await stream;
  await sim.stop();
  await expect(response.text()).rejects.toThrow();
  await expect(fetch(`${sim.url}/health`)).rejects.toThrow();
});

test("presets and overrides make the parameters", async () => {
  const sim = await startSim({ preset: "h100-70b-tp4", parameters: { blockCount: 77, maxRunning: 3 } });
  const { parameters } = await sim.state();
  expect(parameters).toMatchObject({ blockCount: 77, maxRunning: 3, flavour: "vllm" });
  const plain = await startSim();
  expect((parameters as { stepBaseMs: number }).stepBaseMs).not.toBe(
    ((await plain.state()).parameters as { stepBaseMs: number }).stepBaseMs,
  );
});

test("KV events are published where localhost is", async () => {
  const sim = await startSim({ host: "localhost", kvEvents: { dialect: "auto" } });
  expect((await sim.get("/kv_event_sources")).status).toBe(200);
});

test("an IPv6 address stands in brackets", async () => {
  const sim = await startEngineSim({ host: "::1" });
  onTestFinished(() => sim.stop());
  expect(sim.engines[0]?.url).toMatch(/^http:\/\/\[::1\]:\d+$/);
  expect((await fetch(`${sim.engines[0]?.url}/health`)).status).toBe(200);
});

test.each<[EngineSimOptions, string]>([
  [{ engines: 0 }, "engines"],
  [{ engines: 257 }, "engines"],
  [{ port: 65_536 }, "port"],
  [{ port: 65_535, engines: 2 }, "ports"],
  [{ preset: "tpu" as "a10g-7b" }, "preset"],
  [{ speed: 0 }, "speed"],
  [{ speed: Number.POSITIVE_INFINITY }, "speed"],
  [{ seed: 0.5 }, "seed"],
  [{ naturalLengthMean: -1 }, "natural-length-mean"],
  [{ mediaTokens: 0.5 }, "media-tokens"],
  [{ models: [""] }, "model"],
  [{ parameters: { blockCount: 0 } }, "blockCount"],
  [{ kvEvents: { dialect: "vllm-0.1" as "auto" } }, "kv-events"],
  [{ kvEvents: { dialect: "auto", port: 65_536 } }, "kv-events-port"],
  [{ engines: 2, kvEvents: { dialect: "auto", port: 65_533 } }, "ports"],
  [{ kvEvents: { dialect: "auto", bufferSteps: 1_000_001 } }, "kv-events-buffer"],
  [{ host: "::1", kvEvents: { dialect: "auto" } }, "IPv4"],
])("refuses %j and names it", async (options, word) => {
  await expect(startEngineSim(options)).rejects.toThrow(RangeError);
  await expect(startEngineSim(options)).rejects.toThrow(word);
});
