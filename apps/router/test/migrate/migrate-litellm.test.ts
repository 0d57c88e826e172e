import { loadConfig } from "@espalier/server";
import { expect, test } from "vitest";
import { registerMigrate } from "../../src/commands/migrate.ts";
import { translateLitellm } from "../../src/migrate/litellm.ts";
import { renderMigration } from "../../src/migrate/migration.ts";
import { runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";

const env = { VLLM_KEY: "key-of-engines", MASTER_KEY: "key-of-clients", OPENAI_API_KEY: "key-of-openai" };

const translate = (text: string) => {
  const { settings, entries } = translateLitellm(text, "config.yaml");
  const file = { path: "espalier.yaml", text: renderMigration({ settings, entries }, "A title") };
  return { settings, entries, config: loadConfig({ file, env }) };
};

const deployment = (name: string, params: object): object => ({ model_name: name, litellm_params: params });
const listOf = (...list: readonly object[]): string => JSON.stringify({ model_list: list });

test("deployments are engines, with the names that clients know as aliases, and the key of engines from its variable", () => {
  const params = { model: "hosted_vllm/org/m", api_key: "os.environ/VLLM_KEY" };
  const { settings, config } = translate(
    listOf(
      deployment("m", { ...params, api_base: "http://a:8000/v1" }),
      deployment("m", { ...params, api_base: "http://b:8000/v1/" }),
      deployment("again", { ...params, api_base: "http://b:8000" }),
    ),
  );
  expect(config.engines).toMatchObject([{ url: "http://a:8000" }, { url: "http://b:8000" }]);
  expect(settings).toMatchObject({
    models: { aliases: { m: "org/m", again: "org/m" } },
    pools: [{ models: ["*"], "engine-api-key": "${VLLM_KEY}" }],
    listen: { host: "0.0.0.0", port: 4_000 },
  });
});

test("one name for several models divides its requests by the weights of its deployments", () => {
  const on = (model: string, weight?: number) =>
    deployment("m", { model: `openai/${model}`, api_base: "http://a:1", ...(weight === undefined ? {} : { weight }) });
  const { settings } = translate(listOf(on("one", 3), on("two"), on("two")));
  expect(settings.models).toEqual({
    splits: {
      m: [
        { model: "one", weight: 3 },
        { model: "two", weight: 2 },
      ],
    },
  });
});

test("models of OpenAI and Anthropic answer when engines cannot; other providers are named with their place", () => {
  const text = listOf(
    deployment("gpt", { model: "openai/gpt-4o", api_key: "os.environ/OPENAI_API_KEY" }),
    deployment("claude", { model: "anthropic/claude", api_key: "key-with-a-${B}" }),
    deployment("other", { model: "gemini/pro" }),
    deployment("here", { model: "openai/m", api_base: "os.environ/BASE" }),
    { model_name: "empty" },
  );
  const { settings, entries } = translate(text);
  expect(settings.overflow).toEqual([
    {
      name: "openai",
      url: "https://api.openai.com/v1",
      api: "openai",
      key: "${OPENAI_API_KEY}",
      models: { gpt: "gpt-4o" },
    },
    {
      ...{ name: "anthropic", url: "https://api.anthropic.com/v1", api: "anthropic" },
      ...{ key: "key-with-a-$${B}", models: { claude: "claude" } },
    },
  ]);
  const missing = entries.filter(({ outcome }) => outcome === "missing").map(({ theirs }) => theirs);
  expect(missing).toEqual(["model_list[2]", "model_list[3].litellm_params.api_base", "model_list[4]"]);
});

test("settings of the router are translated or said, and keys stand in no comment", async () => {
  const file = temporaryFile(
    "config.yaml",
    `model_list: [{ model_name: m, litellm_params: { model: openai/m, api_base: "http://a:1", rpm: 5 } }]
router_settings:
  routing_strategy: least-busy
  cooldown_time: 30
  num_retries: 2
  model_group_alias: { alias: m }
  redis_password: secret-of-redis
litellm_settings: { request_timeout: 600, json_logs: true, cache: false, unheard_of: 1 }
general_settings: { master_key: secret-of-clients, database_url: "postgres://u:secret@db" }
environment_variables: { A: b }
`,
  );
  const { stdout, stderr, exitCode } = await runCommand(registerMigrate, "migrate", "--from", "litellm", file);
  expect(exitCode).toBeUndefined();
  const { effective, apiKeys } = loadConfig({ file: { path: "espalier.yaml", text: stdout } });
  expect(effective).toMatchObject({
    policy: { name: "least_connections" },
    breaker: { open: 30_000 },
    timeouts: { answer: 600_000 },
    log: { format: "json" },
    models: { aliases: { alias: "m" } },
  });
  expect(apiKeys).toHaveLength(1);
  const said = ["router_settings.num_retries 2", "general_settings.database_url", "model_list[].litellm_params: rpm"];
  for (const theirs of said) expect(stderr).toContain(`${theirs}: not translated`);
  expect(stderr).toMatch(/:8:\d+: litellm_settings\.unheard_of: not translated/);
  expect(stderr).toContain("environment_variables: not translated");
  expect(stderr).not.toContain("litellm_settings.cache");
  expect(`${stderr}${stdout.replaceAll(/^[^#].*$/gm, "")}`).not.toMatch(/secret-of|u:secret/);
});

test("the configuration is found inside a ConfigMap, and a file without one is refused", () => {
  const text =
    'data:\n  config.yaml: |\n    model_list: [{ model_name: m, litellm_params: { model: m, api_base: "http://a:1" } }]\n';
  expect(translate(text).config.engines).toMatchObject([{ url: "http://a:1" }]);
  expect(() => translate("router_settings: {}\n")).toThrow("config.yaml: model_list is missing");
});
