import { Type } from "typebox";
import { expect, expectTypeOf, test, vi } from "vitest";
import { configJsonSchema, flagCatalogue, loadConfig, renderConfigurationDocs } from "../../src/config/index.ts";
import { duration, filePath, flag, integer, list, map, section, size, text } from "../../src/config/schema-builders.ts";
import { Secret } from "../../src/config/secret.ts";
import { compiled, type SettingsOf, settingsOf } from "../../src/config/settings-of.ts";

const range = { description: "Something.", minimum: 0, maximum: 9 };
const time = { description: "A time.", minimum: "0s", maximum: "1h" };
const bytes = { description: "A size.", minimum: "1B", maximum: "1MiB" };
const grown = section("Of a test.", {
  "first-byte": duration(time),
  answer: Type.Optional(duration(time)),
  "max-body-bytes-in-flight": size(bytes),
  cache: size(bytes),
  verify: flag({ description: "Whether." }),
  tls: Type.Optional(section("Files.", { "ca-file": Type.Optional(filePath("A file.")) })),
  key: text({ description: "A key.", isSecret: true }),
  rules: list(section("A rule.", { "at-most": duration(time) }), { description: "Rules.", maxItems: 9 }),
  shares: map(section("A share.", { "per-user": integer(range) }), { description: "Shares.", maxProperties: 9 }),
});

test("a setting has its key in camel case and its unit as its name in code, unless the key names the unit", () => {
  expectTypeOf<SettingsOf<typeof grown>>().toEqualTypeOf<{
    readonly firstByteMs: number;
    readonly answerMs: number | undefined;
    readonly maxBodyBytesInFlight: number;
    readonly cacheBytes: number;
    readonly verify: boolean;
    readonly tls: { readonly caFile: string | undefined } | undefined;
    readonly key: Secret;
    readonly rules: readonly { readonly atMostMs: number }[];
    readonly shares: Readonly<Record<string, { readonly perUser: number }>>;
  }>();
  const tree = {
    ...{ "first-byte": 5, "max-body-bytes-in-flight": 1_024, cache: 2_048, verify: true },
    ...{ tls: {}, key: "secret-1", rules: [{ "at-most": 7 }], shares: { "some-name": { "per-user": 3 } } },
  };
  const { key, ...settings } = settingsOf(grown, tree);
  expect(key.reveal()).toBe("secret-1");
  expect(settings).toStrictEqual({
    ...{ firstByteMs: 5, answerMs: undefined, maxBodyBytesInFlight: 1_024, cacheBytes: 2_048, verify: true },
    ...{ tls: { caFile: undefined }, rules: [{ atMostMs: 7 }], shares: { "some-name": { perUser: 3 } } },
  });
});

test("settings that are compiled have the form that their schema says, wherever they are", () => {
  const words = compiled(text({ description: "Words." }), (written) => written.split(" "));
  const rule = compiled(section("A rule.", { "at-most": duration(time) }), ({ atMostMs }, tree) => ({
    both: atMostMs + tree["at-most"],
  }));
  const schema = section("Of a test.", {
    words,
    rule: Type.Optional(rule),
    rules: list(rule, { description: "Rules.", maxItems: 9 }),
    named: map(rule, { description: "Rules by name.", maxProperties: 9 }),
  });
  expectTypeOf<SettingsOf<typeof schema>>().toEqualTypeOf<{
    readonly words: string[];
    readonly rule: { both: number } | undefined;
    readonly rules: readonly { both: number }[];
    readonly named: Readonly<Record<string, { both: number }>>;
  }>();
  const tree = { words: "a b", rules: [{ "at-most": 2 }], named: { one: { "at-most": 3 } } };
  expect(settingsOf(schema, tree)).toStrictEqual({
    ...{ words: ["a", "b"], rule: undefined, rules: [{ both: 4 }], named: { one: { both: 6 } } },
  });
});

vi.mock("../../src/config/sections/listeners.ts", async (original) => {
  const [listeners, builders] = [await original<object>(), await import("../../src/config/schema-builders.ts")];
  const options = { description: "A setting of a test.", default: "3s", minimum: "1s", maximum: "1h" };
  const key = builders.text({ description: "A key of a test.", default: "secret-1", isSecret: true });
  const drain = builders.section("Drain.", { "new-pause": builders.duration(options), "new-key": key });
  return { ...listeners, drain };
});

test("a new value in a section of the schema is a key, a name in code, a flag, a variable, a row and a JSON Schema", () => {
  const flags = flagCatalogue.filter(({ path }) => path === "drain.new-pause");
  expect(flags.map(({ flag: name, default: standard }) => [name, standard])).toEqual([["--drain-new-pause", "3s"]]);
  expect(renderConfigurationDocs()).toContain(
    "| `drain.new-pause` | a duration from 1s to 1h | `3s` | `ESPALIER_DRAIN_NEW_PAUSE` | `--drain-new-pause` |",
  );
  expect(configJsonSchema).toHaveProperty("properties.drain.properties.new-pause.description", "A setting of a test.");
  const file = { path: "espalier.yaml", text: "drain: { new-pause: 4s }" };
  expect(loadConfig({}).drain).toMatchObject({ newPauseMs: 3_000 });
  expect(loadConfig({ file }).drain).toMatchObject({ newPauseMs: 4_000 });
  expect(loadConfig({ file, env: { ESPALIER_DRAIN_NEW_PAUSE: "5s" } }).drain).toMatchObject({ newPauseMs: 5_000 });
  expect(loadConfig({ flags: { "--drain-new-pause": "6s" } }).drain).toMatchObject({ newPauseMs: 6_000 });
});

test("a new secret in a section of the schema is masked where the configuration is shown", () => {
  const config = loadConfig({ flags: { "--drain-new-key": "secret-2" } });
  expect(config.drain).toMatchObject({ newKey: expect.any(Secret) });
  expect(config.effective.drain).toEqual({ "new-pause": 3_000, "new-key": "***" });
});
