import type { EngineSimOptions } from "@espalier/engine-sim";
import { startEngineSim } from "@espalier/engine-sim";
import { expect, onTestFinished, test } from "vitest";
import { parseCommandLine } from "../src/command-line.ts";
import { startPd } from "./pd-client.ts";
import { startSim } from "./sim-client.ts";

type Transfer = NonNullable<EngineSimOptions["transfer"]>;

test("flags make the options", () => {
  const flags =
    "--kv-transfer sglang-bootstrap --role decode --kv-transfer-port 9000 --kv-transfer-bytes-per-token 1000 " +
    "--kv-transfer-bytes-per-second 2e9 --kv-transfer-setup-ms 3 --kv-transfer-timeout-ms 400 " +
    "--kv-transfer-failure recompute";
  expect(parseCommandLine(flags.split(" ")).options.transfer).toEqual({
    protocol: "sglang-bootstrap",
    role: "decode",
    port: 9_000,
    bytesPerToken: 1_000,
    linkBytesPerSecond: 2e9,
    setupMs: 3,
    timeoutMs: 400,
    onFailure: "recompute",
  });
  const shared = parseCommandLine(["--kv-transfer", "shared-storage", "--kv-storage", "http://127.0.0.1:1"]);
  expect(shared.options.transfer).toEqual({ protocol: "shared-storage", storageUrl: "http://127.0.0.1:1" });
  const pool = "--kv-transfer shared-storage --kv-pool-events vllm-0.32 --kv-pool-events-port 7000";
  expect(parseCommandLine(pool.split(" ")).options.transfer).toEqual({
    protocol: "shared-storage",
    poolEvents: { dialect: "vllm-0.32", port: 7_000 },
  });
  expect(parseCommandLine(pool.split(" ").slice(0, 4)).options.transfer?.poolEvents).toEqual({ dialect: "vllm-0.32" });
  expect(parseCommandLine([]).options.transfer).toBeUndefined();
});

test.each([
  ["--role prefill", "--role needs --kv-transfer"],
  ["--kv-transfer-port 1", "--kv-transfer-port needs --kv-transfer"],
  ["--kv-transfer smoke-signals", "--kv-transfer is one of nixl"],
  ["--kv-transfer nixl --role cook", "--role is one of prefill, decode, both"],
  ["--kv-transfer nixl --kv-transfer-failure cry", "--kv-transfer-failure is fail or recompute"],
  ["--kv-pool-events auto", "--kv-pool-events needs --kv-transfer"],
  ["--kv-transfer shared-storage --kv-pool-events latin", "--kv-pool-events is one of auto"],
  ["--kv-transfer shared-storage --kv-pool-events-port 1", "--kv-pool-events-port needs --kv-pool-events"],
  ["--kv-transfer nixl --kv-transfer-setup-ms soon", "--kv-transfer-setup-ms is a number"],
])("%s is refused", (flags, message) => {
  expect(() => parseCommandLine(flags.split(" "))).toThrow(message);
});

test.each<[Transfer, string]>([
  [{ protocol: "smoke" as "nixl" }, "kv-transfer"],
  [{ protocol: "nixl", role: "cook" as "both" }, "role"],
  [{ protocol: "p2p-nccl" }, "role"],
  [{ protocol: "nixl", port: 65_536 }, "kv-transfer-port"],
  [{ protocol: "nixl", port: 65_535 }, "ports"],
  [{ protocol: "nixl", bytesPerToken: 0 }, "bytes-per-token"],
  [{ protocol: "nixl", linkBytesPerSecond: Number.NaN }, "bytes-per-second"],
  [{ protocol: "nixl", setupMs: -1 }, "setup-ms"],
  [{ protocol: "nixl", timeoutMs: 0 }, "timeout-ms"],
  [{ protocol: "nixl", timeoutMs: 86_400_001 }, "timeout-ms"],
  [{ protocol: "nixl", onFailure: "cry" as "fail" }, "failure"],
  [{ protocol: "nixl", storageUrl: "http://127.0.0.1:1" }, "kv-storage"],
  [{ protocol: "shared-storage", storageUrl: "over there" }, "kv-storage"],
  [{ protocol: "nixl", poolEvents: { dialect: "auto" } }, "kv-pool-events"],
  [{ protocol: "shared-storage", storageUrl: "http://127.0.0.1:1", poolEvents: { dialect: "auto" } }, "kv-pool-events"],
  [{ protocol: "shared-storage", poolEvents: { dialect: "latin" as "auto" } }, "kv-pool-events must be one of"],
  [{ protocol: "shared-storage", poolEvents: { dialect: "auto", port: 65_535 } }, "the ports of kv-pool-events"],
])("refuses %j and names it", async (transfer, word) => {
  await expect(startEngineSim({ engines: 2, transfer })).rejects.toThrow(RangeError);
  await expect(startEngineSim({ engines: 2, transfer })).rejects.toThrow(word);
});

test("every engine of a process has its own side channel and name, and shares the first one's storage", async () => {
  const sim = await startEngineSim({
    engines: 2,
    speed: 1_000,
    models: ["tiny"],
    transfer: { protocol: "shared-storage" },
  });
  onTestFinished(() => sim.stop());
  const [first, second] = sim.engines;
  expect(first?.transferPort).not.toBe(second?.transferPort);
  const post = (url: string | undefined) =>
    fetch(`${url}/v1/completions`, {
      method: "POST",
      body: JSON.stringify({ prompt: "z".repeat(400), max_tokens: 1 }),
    });
  await (await post(first?.url)).text();
  const answer = (await (await post(second?.url)).json()) as {
    usage: { prompt_tokens_details: { cached_tokens: number } };
  };
  expect(answer.usage.prompt_tokens_details.cached_tokens).toBe(96);
  const reported = (await (await fetch(`${second?.url}/sim/transfers`)).json()) as {
    totals: { importedTokens: number };
  };
  expect(reported.totals.importedTokens).toBe(96);
});

test("an engine tells its connector where vLLM does, and nothing where it has none", async () => {
  const sim = await startPd({ protocol: "nixl", role: "prefill", onFailure: "recompute" });
  expect((await sim.get("/server_info")).json).toMatchObject({
    vllm_config: {
      kv_transfer_config: {
        kv_connector: "NixlConnector",
        kv_role: "kv_producer",
        kv_port: sim.port,
        kv_load_failure_policy: "recompute",
      },
    },
  });
  const plain = await startSim();
  expect((await plain.get("/server_info")).text).not.toContain("kv_transfer_config");
  expect((await plain.get("/sim/transfers")).status).toBe(404);
});

test("a side channel knows its own paths only, and claims need a ticket", async () => {
  const sim = await startPd({ protocol: "nixl" });
  const channel = `http://127.0.0.1:${sim.port}`;
  expect((await fetch(`${channel}/v1/models`)).status).toBe(404);
  const post = (path: string, body: string) => fetch(channel + path, { method: "POST", body });
  expect((await post("/kv/claim", "{}")).status).toBe(400);
  expect((await post("/kv/claim", "[]")).status).toBe(400);
  expect((await post("/storage/put", '{"blocks":[1]}')).status).toBe(400);
  expect((await fetch(`${channel}/kv/push/x`, { method: "PUT", body: '["a"]' })).status).toBe(400);
  expect((await post("/kv/claim", "not JSON")).status).toBeGreaterThanOrEqual(400);
});
