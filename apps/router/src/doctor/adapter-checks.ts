import { adapterCallsOf } from "@espalier/server";
import { type Finding, fail, pass, warn } from "./check.ts";
import type { Examined } from "./examined.ts";
import { type Engine, eachOf, upEngines } from "./examined-engines.ts";

/** Adapters that routers load, and those that engines have by themselves. */
export async function checkAdapters({ config, fleet }: Examined): Promise<readonly Finding[]> {
  const engines = upEngines(fleet);
  const managed = Object.entries(config.models.adapters);
  const isListed = ({ models = [] }: Engine, name: string) => models.some(({ id }) => id === name);
  const basesOf = (engine: Engine) => (engine.models ?? []).filter(({ parent }) => parent === undefined);
  const ofConfig = managed.flatMap(([name, { model }]): readonly Finding[] => {
    const setting = `models.adapters.${name}`;
    const twin = engines.find((engine) => basesOf(engine).some(({ id }) => id === name));
    if (twin) {
      return [fail(name, `has the name of a model of ${twin.url}`, { setting, fix: "rename the adapter" })];
    }
    if (engines.length === 0 || engines.some((engine) => isListed(engine, model))) return [];
    const fix = "name a model that an engine serves";
    return [fail(name, `no engine serves its model ${model}`, { setting: `${setting}.model`, fix })];
  });
  const models = new Set(managed.map(([, { model }]) => model));
  const loading = await eachOf(
    engines.filter((engine) => [...models].some((model) => isListed(engine, model))),
    async (engine) => {
      const { loadPath } = adapterCallsOf(engine);
      const { status } = await fleet.http({ url: engine.url + loadPath, timeoutMs: 2_000, maxBytes: 65_536 });
      if (status !== 404) return [pass(engine.url, "loads adapters")];
      const fix = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=true, SGLang with --enable-lora";
      return [fail(engine.url, `cannot load adapters: no ${loadPath}`, { setting: "models.adapters", fix })];
    },
  );
  const own = new Map(
    engines.flatMap(({ models: listed = [] }) =>
      listed.flatMap(({ id, parent }) => (parent === undefined ? [] : [[id, parent] as const])),
    ),
  );
  const uneven = [...own].flatMap(([name, parent]) => {
    const serving = engines.filter((engine) => isListed(engine, parent));
    const lacking = serving.filter((engine) => !isListed(engine, name));
    if (lacking.length === 0 || Object.hasOwn(config.models.adapters, name)) return [];
    const having = serving.length - lacking.length;
    const message = `loaded at ${having} of ${serving.length} engines of ${parent}: missing at ${lacking.map(({ url }) => url).join(", ")}`;
    return [
      warn(name, message, {
        setting: `models.adapters.${name}`,
        fix: "load it at all of them, or let the router load it",
      }),
    ];
  });
  return [...ofConfig, ...loading, ...uneven];
}
