// cspell:ignore polcy
import { EspalierError, silentMeter, systemRandom } from "@espalier/core";
import { createInferenceTables } from "@espalier/engines";
import { createPolicy } from "@espalier/policies";
import { createFleetLearning } from "@espalier/routing";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type CompiledConfig, loadConfig } from "../src/config/index.ts";
import { createLiveConfig } from "../src/lifecycle/live-config.ts";
import { createReloader } from "../src/lifecycle/reloader.ts";
import { createPools, poolRules } from "../src/routing/pools.ts";
import { createMetrics } from "../src/telemetry/index.ts";

const read = (text: string): CompiledConfig => loadConfig({ file: { path: "espalier.yaml", text } });

/** A router's configuration, its file a text in memory. */
function start(first: string) {
  const { clock, scheduler } = createVirtualTime();
  const logger = createRecordingLogger();
  const metrics = createMetrics({ processMetrics: false });
  const config = read(first);
  const learning = createFleetLearning({ channel: undefined, clock, scheduler, meter: silentMeter });
  const pools = createPools(poolRules(config), learning.workOf);
  const taken: CompiledConfig[] = [];
  const rewrites = createInferenceTables();
  const live = createLiveConfig({
    ...{ config, random: systemRandom, pools, rewrites, rulesOf: poolRules },
    onChange: (now) => taken.push(now),
  });
  const file = { text: first };
  let onChange = async (): Promise<void> => {};
  const reloader = createReloader({
    source: { file: "espalier.yaml", read: () => read(file.text) },
    apply: live.apply,
    isBlank: () => live.current.isFileBlank,
    watch: (_, listener) => {
      onChange = listener;
      return async () => {
        onChange = async () => {};
      };
    },
    ...{ clock, logger, meter: metrics.meter },
  });
  const written = async (text: string): Promise<void> => {
    file.text = text;
    await onChange();
  };
  return { live, pools, reloader, logger, metrics, taken, file, written, touched: () => onChange() };
}

describe("a reload", () => {
  test("applies what can be, names what cannot, and says both", async () => {
    const { reloader, live, logger, taken, written } = start("policy: least_work\nlisten: { port: 1 }\n");
    await reloader.start();
    await written("policy: random\nlisten: { port: 2 }\nlimits: { max-nesting: 9 }\n");
    expect(reloader.last).toMatchObject({
      trigger: "file",
      applied: ["limits.max-nesting", "policy.name"],
      needsRestart: ["listen.port"],
      error: undefined,
    });
    expect(live.current.limits.maxNesting).toBe(9);
    expect(live.current.listen.port).toBe(1);
    expect(taken.map(({ policy }) => policy.name)).toEqual(["random"]);
    expect(logger.lines.map(({ level, message }) => `${level} ${message}`)).toEqual([
      "info configuration reloaded",
      "warn configuration changes need a restart",
    ]);
  });

  test("applies objectives of models to pools that there are; those of classes wait for a restart, as classes do", async () => {
    const { reloader, pools, written } = start("slo: { tpot: 40ms }\n");
    await reloader.start();
    const pool = pools.settingsFor("m");
    await written("slo: { ttft: 1s, tpot: 30ms }\nadmission: { classes: [{ name: default, slo: { ttft: none } }] }\n");
    expect(reloader.last?.needsRestart).toEqual(["admission.classes"]);
    expect(pool.objectivesOf("default")).toEqual({ ttftMs: 1_000, tpotMs: 30 });
  });

  test("of a broken file changes nothing and says why, once", async () => {
    const { reloader, live, logger, metrics, written, touched } = start("policy: least_work\n");
    await reloader.start();
    await written("polcy: random\nlimits: { max-nesting: 9 }\n");
    await touched();
    expect(live.current.policy.name).toBe("least_work");
    expect(live.current.limits.maxNesting).toBe(read("").limits.maxNesting);
    expect(reloader.last?.error).toMatchObject({ code: "config_invalid", message: expect.stringContaining("polcy") });
    expect(logger.lines).toHaveLength(1);
    const { body } = await metrics.render();
    expect(body).toContain("espalier_config_last_reload_successful 0");
    expect(body).toContain('espalier_config_reloads_total{outcome="failed"} 1');
  });

  test("after a broken one is good again, also when it brings back what was", async () => {
    const { reloader, metrics, written } = start("policy: least_work\n");
    await reloader.start();
    await written("policy: none\n");
    await written("policy: least_work\n");
    expect(reloader.last).toMatchObject({ applied: [], error: undefined });
    expect((await metrics.render()).body).toContain("espalier_config_last_reload_successful 1");
  });

  test("of a file that was only touched is told nobody; one that was asked for is", async () => {
    const { reloader, logger, touched } = start("policy: least_work\n");
    await reloader.start();
    await touched();
    expect(reloader.last).toBeUndefined();
    expect(reloader.reload("admin")).toMatchObject({ applied: [], needsRestart: [], error: undefined });
    expect(logger.lines).toHaveLength(1);
  });

  test("tells of what waits for a restart until it is gone", async () => {
    const { reloader, written, touched, logger } = start("listen: { port: 1 }\n");
    await reloader.start();
    await written("listen: { port: 2 }\n");
    await touched();
    expect(reloader.last?.needsRestart).toEqual(["listen.port"]);
    expect(logger.lines).toHaveLength(2);
    await written("listen: { port: 1 }\n");
    expect(reloader.last?.needsRestart).toEqual([]);
  });

  test("is heard of no more after the stop", async () => {
    const { reloader, live, written } = start("policy: least_work\n");
    await reloader.start();
    await reloader.stop();
    await written("policy: random\n");
    expect(live.current.policy.name).toBe("least_work");
  });

  test("without a source says that there is none", () => {
    const { clock } = createVirtualTime();
    const logger = createRecordingLogger();
    const { meter } = createMetrics({ processMetrics: false });
    const apply = () => {
      throw new EspalierError("internal_error", "nothing was read");
    };
    const watch = () => async () => {};
    const reloader = createReloader({ source: undefined, apply, isBlank: () => false, watch, clock, logger, meter });
    expect(reloader.reload("admin").error?.code).toBe("config_unreadable");
  });
});

/** Every engine was removed when the file was truncated, as by `cp` and `>` before they write: a blank file had no engines. */
describe("a configuration file that becomes blank", () => {
  const first = "engines: [http://a:1]\n";

  test("is refused whoever asks for it, said loudly, and followed again once it says something", async () => {
    const { reloader, live, logger, file, written } = start(first);
    await reloader.start();
    for (const blank of ["", " \n", "# engines\n", "---\n"]) {
      await written(blank);
      expect(reloader.last?.error).toMatchObject({
        code: "config_invalid",
        message: expect.stringContaining("became empty"),
      });
      expect(live.current.engines.map(({ id }) => id)).toEqual(["a:1"]);
    }
    expect(logger.lines.map(({ level }) => level)).toEqual(["error"]);
    file.text = "";
    for (const trigger of ["signal", "admin"] as const)
      expect(reloader.reload(trigger).error?.code).toBe("config_invalid");
    await written("engines: [http://b:1]\n");
    expect(live.current.engines.map(({ id }) => id)).toEqual(["b:1"]);
    await written("engines: []\n");
    expect(live.current.engines).toEqual([]);
  });

  test("was never another one where the router was started without any content", async () => {
    const { reloader, live, written } = start("");
    await reloader.start();
    await written("\n");
    expect(reloader.last?.error).toBeUndefined();
    await written(first);
    await written("");
    expect([reloader.last?.error?.code, live.current.engines.length]).toEqual(["config_invalid", 1]);
  });
});

describe("what a reload changes", () => {
  test("pools get the policy of their first rule, and keep their own object and what is learned", () => {
    const { live, pools } = start("policy: least_work\n");
    const pool = pools.settingsFor("llama");
    const { work } = pool;
    live.apply(
      read("policy: least_work\npools: [{ models: ['ll*'], policy: random, engine-api-key: engine-key-1 }]\n"),
    );
    expect(pools.settingsFor("llama")).toBe(pool);
    expect(pool.policy.name).toBe("random");
    expect(pool.work).toBe(work);
    expect(pool.upstreamHeaders).toEqual(["authorization", "Bearer engine-key-1"]);
    expect(pools.settingsFor("qwen").policy.name).toBe("least_work");
  });

  test("a policy that stays the same keeps what it remembers", () => {
    const { live, pools } = start("policy: round_robin\n");
    const { policy } = pools.settingsFor("a");
    live.apply(read("policy: round_robin\npools: [{ models: [b], policy: random }]\n"));
    expect(pools.settingsFor("a").policy).toBe(policy);
    live.apply(read("policy: { name: consistent_hashing, load-factor: 2 }\n"));
    expect(pools.settingsFor("a").policy.name).toBe(createPolicy("consistent_hashing", {}).name);
  });

  test("names of models lead where the new configuration says", () => {
    const { live } = start("models: { aliases: { gpt: a } }\n");
    const before = live.modelRouter;
    live.apply(read("models: { aliases: { gpt: a } }\npolicy: random\n"));
    expect(live.modelRouter).toBe(before);
    live.apply(read("models: { aliases: { gpt: b } }\n"));
    expect(live.modelRouter.resolve("gpt", undefined)).toBe("b");
  });

  test("keys of clients", () => {
    const { live } = start("api-keys: [{ name: a, key: key-number-one }]\n");
    live.apply(read("api-keys: [{ name: b, key: key-number-two }]\n"));
    expect(live.current.apiKeys.map(({ name }) => name)).toEqual(["b"]);
  });

  test("nothing at all, when a policy's options contradict each other", () => {
    const { live, pools } = start("policy: least_work\nlimits: { max-nesting: 7 }\n");
    const broken = { ...read("limits: { max-nesting: 8 }\n"), policy: { name: "no_such_policy", options: {} } };
    expect(() => live.apply(broken)).toThrow(EspalierError);
    expect(live.current.limits.maxNesting).toBe(7);
    expect(pools.settingsFor("a").policy.name).toBe("least_work");
  });
});
