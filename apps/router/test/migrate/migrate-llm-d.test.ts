import { createSeededRandom, type Random } from "@espalier/core";
import { loadConfig, parseYaml } from "@espalier/server";
import { fixedSeeds } from "@espalier/testing";
import { expect, test } from "vitest";
import { llmdPlugins } from "../../src/migrate/llm-d/plugins.ts";
import { translateLlmd } from "../../src/migrate/llm-d/translate.ts";
import { isNotable, type MigrationEntry, renderMigration } from "../../src/migrate/migration.ts";
import { llmdSamples, sample } from "./llm-d-samples.ts";

const translate = (text: string) => translateLlmd(text, "epp.yaml");
const settingsOf = (text: string) => translate(text).settings as Record<string, unknown>;
const notesOf = (text: string): readonly MigrationEntry[] => translate(text).entries.filter(isNotable);
/** What the reader is told of a plugin or a path of theirs. */
const noteOn = (text: string, subject: string) =>
  notesOf(text).find(({ plugin, theirs }) => plugin === subject || theirs === subject);

test.each(Object.entries(llmdSamples))(
  "%s: a configuration that is accepted, in which nothing is lost silently",
  (_, text) => {
    const migration = translate(text);
    const rendered = renderMigration(migration, "A title");
    // Theirs names a model by a variable of the shell that fills it in, and ours reads the same variable.
    const config = loadConfig({ file: { path: "espalier.yaml", text: rendered } });
    expect(config.endpointPicker).toMatchObject({ host: "0.0.0.0", port: 9_002 });
    const plugins = (text.match(/"type":"[a-z0-9-]+"/g) ?? []).map((each) => each.slice(8, -1));
    const named = new Set(migration.entries.map(({ plugin }) => plugin));
    for (const plugin of plugins.filter((type) => !type.includes("_") && type !== "threshold")) {
      expect([plugin, named.has(plugin)]).toEqual([plugin, true]);
    }
    for (const entry of migration.entries.filter(isNotable)) {
      expect(rendered).toContain(entry.theirs);
      if (entry.outcome === "missing")
        expect([entry.theirs, entry.instead]).toEqual([entry.theirs, expect.stringMatching(/./)]);
      else expect(entry.ours).toMatch(/./);
    }
  },
);

/** Every type that `RegisterAllPlugins` of llm-d's runner names at commit ebab687. */
const registered =
  "active-request-scorer agent-identity always-disagg-multimodal-decider always-disagg-pd-decider anthropic-parser approx-prefix-cache-producer burst-prefix-cache-producer by-label by-label-selector concurrency-detector context-length-aware core-metrics-extractor data-parallel-profile-handler dcgm-data-source dcgm-extractor decode-filter destination-endpoint-served-verifier disagg-headers-handler disagg-profile-handler disaggregatedset-rollout-screener edf-ordering-policy encode-filter endpoint-attribute-filter endpoint-attribute-scorer endpoint-notification-source fcfs-ordering-policy file-discovery global-strict-fairness-policy header-based-testing-filter header-label-affinity-scorer header-profile-handler inflight-load-producer k8s-notification-source kv-cache-utilization-scorer label-selector-filter latency-scorer latency-slo-admitter load-aware-scorer lora-affinity-scorer max-score-picker metrics-data-source mm-embeddings-cache-producer mm-embeddings-cache-scorer models-data-extractor models-data-source multicluster-approx-prefix-cache-producer multicluster-file-discovery multicluster-kv-cache-utilization-scorer multicluster-metrics-data-source multicluster-metrics-extractor multicluster-prefix-cache-scorer multicluster-queue-scorer multicluster-session-affinity-filter no-hit-lru-scorer openai-parser p2p-source-producer passthrough-parser pd-profile-handler precise-prefix-cache-producer precise-prefix-cache-scorer predicted-latency-producer prefill-filter prefill-header-handler prefix-based-pd-decider prefix-cache-affinity-filter prefix-cache-scorer priority-holdback-policy priority-then-time-eviction-order-policy probabilistic-admitter program-aware-fairness queue-scorer random-picker request-attribute-reporter round-robin-fairness-policy running-requests-size-scorer session-affinity-filter session-affinity-scorer session-id-producer sglanghttp-parser sheddable-eviction-filter single-profile-handler slo-deadline-ordering-policy slo-headroom-tier-filter soft-reflective-ceiling-policy static-usage-limit-policy token-load-scorer token-producer tokenizer topology-affinity-filter topology-affinity-scorer topology-extractor utilization-detector utilization-filter vertexai-parser vllmgrpc-parser vllmhttp-parser weighted-random-picker".split(
    " ",
  );

test("the table has every plugin of llm-d, and says of each what it is here or what to do instead", () => {
  expect(Object.keys(llmdPlugins).toSorted()).toEqual(registered);
  for (const [type, { ours, why, instead }] of Object.entries(llmdPlugins)) {
    if (ours === undefined) expect([type, why, instead]).toEqual([type, expect.any(String), expect.any(String)]);
  }
});

test("weights of scorers: llm-d's default where none is written, none for what is not there, a sum for what is one here", () => {
  const text = sample({
    plugins: [
      "queue-scorer",
      "prefix-cache-scorer",
      ["precise-prefix-cache-scorer", {}, "precise"],
      "load-aware-scorer",
    ],
    profiles: { default: ["queue-scorer", ["prefix-cache-scorer", 2.5], ["precise", 4], ["load-aware-scorer", 3]] },
  });
  expect(settingsOf(text).policy).toEqual({
    name: "epp_weighted",
    "queue-weight": 2.5,
    "kv-cache-utilization-weight": 0,
    "prefix-cache-weight": 6.5,
  });
  expect(noteOn(text, "schedulingProfiles[0].plugins[2]")).toMatchObject({ why: expect.stringContaining("are added") });
});

test("without profiles, every scorer counts, as there", () => {
  const text = sample({ plugins: ["queue-scorer", "lora-affinity-scorer"], profiles: {} });
  expect(settingsOf(text).policy).toMatchObject({
    "queue-weight": 1,
    "lora-affinity-weight": 1,
    "prefix-cache-weight": 0,
  });
});

test("a weight that no setting takes is named, and the rest stays", () => {
  const text = sample({
    plugins: ["queue-scorer", "lora-affinity-scorer"],
    profiles: {
      default: [
        ["queue-scorer", 1_000_001],
        ["lora-affinity-scorer", -1],
      ],
    },
  });
  expect(settingsOf(text).policy).toMatchObject({ name: "epp_weighted", "queue-weight": 0 });
  expect(notesOf(text).filter(({ why }) => why?.includes("from 0 to 1000000"))).toHaveLength(2);
});

test.each([
  ["affinity_filter", ["prefix-cache-affinity-filter", "token-load-scorer"]],
  ["affinity_filter", ["prefix-cache-affinity-filter", "queue-scorer"]],
  ["predicted_latency", ["prefix-cache-affinity-filter", "latency-scorer", "queue-scorer"]],
  ["predicted_latency", ["slo-headroom-tier-filter"]],
  ["sticky", ["session-affinity-filter", "prefix-cache-scorer"]],
  ["sticky", ["session-affinity-scorer", "active-request-scorer"]],
  ["epp_weighted", ["session-affinity-scorer", "prefix-cache-scorer"]],
  ["random", ["random-picker", "queue-scorer"]],
  ["random", ["max-score-picker"]],
  [undefined, ["context-length-aware"]],
])("the policy is %s for %j", (name, plugins) => {
  const text = sample({ plugins, profiles: { default: plugins } });
  expect((settingsOf(text).policy as { name?: string } | undefined)?.name).toBe(name);
});

test("options of the affinity filter, and of what a policy does not take", () => {
  const parameters = {
    ...{ affinityThreshold: 0.9, maxTTFTPenaltyMs: 5_000.4, peakPrefillThroughput: 20_000 },
    ...{ explorationProbability: 0.1, ttftSource: "prefillThroughput" },
  };
  const text = sample({
    plugins: [
      ["prefix-cache-affinity-filter", parameters],
      ["approx-prefix-cache-producer", { maxPrefixTokensToMatch: 4_096 }],
      "token-load-scorer",
    ],
    profiles: { default: ["prefix-cache-affinity-filter", "token-load-scorer"] },
  });
  expect(settingsOf(text).policy).toEqual({
    name: "affinity_filter",
    "affinity-threshold": 0.9,
    "max-ttft-penalty-ms": 5_000,
    "prefill-tokens-per-second": 20_000,
  });
  expect(noteOn(text, "plugins[0].parameters.explorationProbability")).toMatchObject({ outcome: "missing" });
  expect(noteOn(text, "plugins[1].parameters.maxPrefixTokensToMatch")?.why).toContain(
    "`policy: affinity_filter` has no",
  );
});

test("sizes of prefix caches: tokens before blocks, no bound as the largest one, and blocks in tokens", () => {
  const sizes = (parameters: object) => {
    const settings = settingsOf(
      sample({
        plugins: ["prefix-cache-scorer", ["approx-prefix-cache-producer", parameters]],
        profiles: { default: ["prefix-cache-scorer"] },
      }),
    );
    const { "max-prefix-tokens": matched } = settings.policy as Record<string, unknown>;
    return [matched, (settings.prefix as Record<string, unknown> | undefined)?.["placement-tokens"]];
  };
  expect(sizes({})).toEqual([undefined, undefined]);
  expect(sizes({ maxPrefixTokensToMatch: 1_000, maxPrefixBlocksToMatch: 7 })).toEqual([1_000, undefined]);
  expect(sizes({ maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 7, blockSizeTokens: 32 })).toEqual([
    224,
    undefined,
  ]);
  expect(sizes({ maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 0 })).toEqual([100_000_000, undefined]);
  expect(sizes({ blockSizeTokens: 32, lruCapacityPerServer: 1_000 })).toEqual([undefined, 32_000]);
  expect(sizes({ lruCapacityPerServer: 1 })).toEqual([undefined, 1_024]);
});

test("prefill and decode: the decider's threshold, always, never, and one that is not known", () => {
  const threshold = (decider: string | undefined, parameters: object = {}) =>
    settingsOf(
      sample({
        plugins: [
          ["disagg-profile-handler", decider === undefined ? {} : { deciders: { prefill: decider } }],
          ...(decider === undefined ? [] : [[decider, parameters] as const]),
          "decode-filter",
        ],
        profiles: { prefill: [], decode: ["decode-filter"] },
      }),
    ).disaggregation;
  expect(threshold("prefix-based-pd-decider", { nonCachedTokens: 512 })).toEqual({ "threshold-tokens": 512 });
  expect(threshold("always-disagg-pd-decider")).toEqual({ "threshold-tokens": 1 });
  expect(threshold("prefix-based-pd-decider", { nonCachedTokens: 0 })).toEqual({ "threshold-tokens": 10_000_000 });
  expect(threshold(undefined)).toEqual({ "threshold-tokens": 10_000_000 });
  expect(threshold("my-decider")).toBeUndefined();
});

test("the profile for decode is the one whose weights count, by the name that the handler gives it", () => {
  const text = sample({
    plugins: [["disagg-profile-handler", { profiles: { decode: "writers" } }], "queue-scorer", "active-request-scorer"],
    profiles: { readers: [["queue-scorer", 9]], writers: [["active-request-scorer", 4]] },
  });
  expect(settingsOf(text).policy).toMatchObject({ "active-request-weight": 4, "queue-weight": 0 });
  expect(noteOn(text, "queue-scorer")?.why).toContain("the profile for decode");
});

test("flow control: bands are classes, the highest first, with one for the priority of those that say none", () => {
  const text = sample({
    plugins: ["edf-ordering-policy", "queue-scorer"],
    profiles: {},
    featureGates: ["flowControl"],
    flowControl: {
      priorityBands: [
        { priority: -5, maxRequests: 10 },
        { priority: 20, maxRequests: "1k", orderingPolicyRef: "edf-ordering-policy" },
        { priority: 20 },
      ],
      defaultRequestTTL: "1m30s",
    },
  });
  expect(settingsOf(text)).toMatchObject({
    "endpoint-picker": { "answer-within": "90s" },
    admission: {
      classes: [
        { name: "priority-20", order: "edf" },
        { name: "priority-0", order: "fcfs" },
        { name: "priority-minus-5", order: "fcfs" },
      ],
      "default-class": "priority-0",
      "max-queued": 1_010,
      "max-waiting": 5,
      "max-kv-use": 0.8,
    },
  });
});

test("one class too many is named, and the class of those that say none stays", () => {
  const bands = Array.from({ length: 20 }, (_, at) => ({ priority: at + 1 }));
  const text = sample({
    plugins: [],
    profiles: {},
    featureGates: ["flowControl"],
    flowControl: { priorityBands: bands },
  });
  const { classes } = settingsOf(text).admission as { classes: readonly { name: string }[] };
  expect(classes).toHaveLength(16);
  expect(classes.at(-1)?.name).toBe("priority-0");
  expect(notesOf(text).filter(({ why }) => why?.includes("at most 16 classes"))).toHaveLength(5);
  expect(() => loadConfig({ file: { path: "o", text: renderMigration(translate(text), "") } })).not.toThrow();
});

test("without the gate nothing waits, as there, and what was written for it has no effect", () => {
  const text = sample({ plugins: [], profiles: {}, flowControl: { maxBytes: "1Gi" } });
  expect(settingsOf(text).admission).toEqual({ mode: "off" });
});

test("detectors: thresholds of utilization, tokens at once, and requests at once, which is no limit here", () => {
  const admissionOf = (detector: string, parameters: object) => {
    const text = sample({
      plugins: [[detector, parameters]],
      profiles: {},
      featureGates: ["flowControl"],
      flowControl: { saturationDetector: { pluginRef: detector } },
    });
    return { admission: settingsOf(text).admission, notes: notesOf(text) };
  };
  expect(admissionOf("utilization-detector", { queueDepthThreshold: 12, kvCacheUtilThreshold: 0.9 }).admission).toEqual(
    {
      "max-waiting": 12,
      "max-kv-use": 0.9,
    },
  );
  const tokens = admissionOf("concurrency-detector", { concurrencyMode: "tokens", maxTokenConcurrency: 50_000 });
  expect(tokens.admission).toEqual({ classes: [{ name: "default", "max-pending-tokens": 50_000 }] });
  const { notes } = admissionOf("concurrency-detector", { maxConcurrency: 132, headroom: 0.2 });
  expect(notes.map(({ theirs }) => theirs)).toEqual(
    expect.arrayContaining(["plugins[0].parameters.maxConcurrency", "plugins[0].parameters.headroom"]),
  );
});

test("sessions: headers in the order of their sources, with those of producers and agents", () => {
  const text = sample({
    plugins: [
      ["session-id-producer", { headerName: "X-Conversation" }, "conversations"],
      ["agent-identity", { additionalSessionHeaders: ["x-my-agent"] }],
      [
        "session-affinity-filter",
        {
          strategy: "session_id",
          sessionIdConfig: {
            sources: [
              { header: "x-session-id" },
              { attribute: "session-id", producer: "conversations" },
              { attribute: "agent-identity" },
              { attribute: "mine", producer: "elsewhere" },
            ],
            evictionTtlSeconds: 600,
          },
        },
      ],
    ],
    profiles: { default: ["session-affinity-filter"] },
  });
  expect(settingsOf(text)).toMatchObject({ policy: { name: "sticky", "max-idle-seconds": 600 } });
  expect(settingsOf(text)["session-key"]).toEqual(
    expect.arrayContaining(["header:x-session-id", "header:x-conversation", "header:x-my-agent", "header:session-id"]),
  );
  expect(noteOn(text, "plugins[2].parameters.sessionIdConfig.sources[3]")).toMatchObject({ outcome: "missing" });
});

test("metrics, TLS and the file of engines", () => {
  const text = sample({
    plugins: [
      [
        "metrics-data-source",
        {
          ...{ scheme: "https", path: "/stats", interval: "10ms", port: 9_400 },
          ...{ caCertPath: "/tls/ca.crt", clientCertPath: "/tls/tls.crt", clientKeyPath: "/tls/tls.key" },
        },
      ],
      ["file-discovery", { path: "/etc/epp/endpoints.yaml" }],
      ["max-score-picker", { maxNumOfEndpoints: 3 }],
    ],
    profiles: {},
    dataLayer: { discovery: { pluginRef: "file-discovery" }, peerDiscovery: { pluginRef: "file-discovery" } },
  });
  expect(settingsOf(text)).toMatchObject({
    scrape: { path: "/stats", interval: "50ms" },
    "engine-tls": { "ca-file": "/tls/ca.crt", "cert-file": "/tls/tls.crt", "key-file": "/tls/tls.key", verify: false },
    "engines-file": "/etc/epp/endpoints.yaml",
    "endpoint-picker": { fallbacks: 2 },
  });
  expect(noteOn(text, "--pool-name, --pool-namespace")).toBeUndefined();
  expect(noteOn(text, "dataLayer.peerDiscovery")?.instead).toContain("`mesh.seeds`");
  expect(noteOn(text, "plugins[0].parameters.port")).toMatchObject({
    place: expect.stringMatching(/^epp\.yaml:4:\d+$/),
  });
});

test("what llm-d does not have is named with its place: plugins, parameters, gates, settings", () => {
  const text = sample({
    plugins: ["queue-scorrer", ["queue-scorer", { threshold: 3 }], ["no-hit-lru-scorer", { lruSize: 5 }]],
    profiles: { default: ["queue-scorrer", "queue-scorer"] },
    featureGates: ["flowControl=false", "timeTravel"],
    dataLayer: { sourcs: [] },
    shedulingProfiles: [],
  });
  expect(noteOn(text, "queue-scorrer")).toMatchObject({
    place: "epp.yaml:4:3",
    why: expect.stringContaining("did you mean queue-scorer"),
  });
  for (const path of [
    "plugins[1].parameters.threshold",
    "featureGates: timeTravel",
    "dataLayer.sourcs",
    "shedulingProfiles",
  ]) {
    expect([path, noteOn(text, path)?.outcome]).toEqual([path, "missing"]);
  }
  expect(translate(text).entries.find(({ plugin }) => plugin === "no-hit-lru-scorer")?.ours).toContain("in no profile");
});

test("variables of the shell that fills in llm-d's file are variables of ours", () => {
  const text = sample({
    plugins: [
      ["token-producer", { modelName: "$" + "{MODEL_NAME}", vllm: { url: "http://localhost:8000" } }],
      "queue-scorer",
    ],
    profiles: {},
  });
  const file = { path: "o", text: renderMigration(translate(text), "") };
  expect(loadConfig({ file, env: { MODEL_NAME: "org/model" } }).tokenizers).toMatchObject([{ models: ["org/model"] }]);
});

test.each([
  ["", "there is no EndpointPickerConfig in it"],
  ["- a\n- b\n", "there is no EndpointPickerConfig in it"],
  ["kind: ConfigMap\napiVersion: v1\n", "kind is ConfigMap, not EndpointPickerConfig"],
  ["kind: ConfigMap\ndata:\n  epp.yaml: ''\n", "and none is in it"],
  [
    "data:\n  epp.yaml: |\n    kind: EndpointPickerConfig\n    plugins: 7\n",
    'plugins: must be a list (epp.yaml, data["epp.yaml"]:2:1)',
  ],
  [
    "a: { kind: EndpointPickerConfig }\nb: { kind: EndpointPickerConfig }\n",
    "epp.yaml: there are 2 EndpointPickerConfigs in it (a, b); give one of them",
  ],
  ["plugins: []\n", "kind: EndpointPickerConfig is missing"],
  ["kind: EndpointPickerConfig\nplugins: [\n", "epp.yaml:3:1"],
  ["kind: EndpointPickerConfig\nplugins: 7\n", "plugins: must be a list (epp.yaml:2:1)"],
  ["kind: EndpointPickerConfig\nplugins:\n- name: x\n", "plugins[0]: type is missing (epp.yaml:3:3)"],
  ["kind: EndpointPickerConfig\nplugins:\n- queue-scorer\n", "plugins[0]: must be a section (epp.yaml:3:3)"],
  [
    "kind: EndpointPickerConfig\nplugins:\n- { type: a }\n- { type: a }\n",
    "plugins[1]: the name a appears twice (epp.yaml:4:3)",
  ],
  [
    "kind: EndpointPickerConfig\nplugins:\n- { type: a, parameters: [] }\n",
    "plugins[0].parameters: must be a section (epp.yaml:3:14)",
  ],
  [
    "kind: EndpointPickerConfig\nschedulingProfiles:\n- name: one\n  plugins:\n  - pluginRef: nobody\n",
    'schedulingProfiles[0].plugins[0].pluginRef: no plugin has the name "nobody" (epp.yaml:5:5)',
  ],
  [
    "kind: EndpointPickerConfig\nschedulingProfiles:\n- name: one\n  plugins:\n  - { pluginRef: queue-scorer, weight: much }\n",
    "schedulingProfiles[0].plugins[0].weight: must be a number (epp.yaml:5:32)",
  ],
  ["kind: EndpointPickerConfig\nfeatureGates: [a=b=c]\n", "featureGates[0]: must be NAME, NAME=true or NAME=false"],
])("a mistake is refused with its place: %j", (text, message) => {
  expect(() => translate(text)).toThrow(message);
});

/** Values that a mistake may leave in the place of another one. */
const strangeValues = [
  ...[null, true, 0, -1, 1.5, 1e12, Number.MAX_SAFE_INTEGER, "", "x", "1m", "10Gi", "tcp://*:5557", "/a/b"],
  ...[[], {}, [1, "x"], { a: { b: [null] } }, "queue-scorer", "flowControl", "prefix-based-pd-decider"],
];

test.each(fixedSeeds(100))(
  "whatever stands in a configuration, it is refused or becomes one of ours: seed %i",
  (seed) => {
    const random = createSeededRandom(seed);
    const texts = Object.values(llmdSamples);
    for (let changes = 0; changes < 40; changes++) {
      const tree = structuredClone(parseYaml(texts[random.integer(texts.length)] ?? "", "sample").value);
      for (let count = 0; count < 3; count++) changeOne(tree, random);
      let migration: ReturnType<typeof translate>;
      try {
        migration = translate(JSON.stringify(tree));
      } catch (thrown) {
        expect(thrown).toMatchObject({ code: "config_invalid", message: expect.stringContaining("epp.yaml") });
        continue;
      }
      const file = { path: "espalier.yaml", text: renderMigration(migration, "") };
      expect(() => loadConfig({ file }), JSON.stringify(tree)).not.toThrow();
    }
  },
);

/** Replaces, removes or adds one value somewhere below. */
function changeOne(tree: unknown, random: Random): void {
  if (typeof tree !== "object" || tree === null) return;
  const node = tree as Record<string, unknown>;
  const keys = Object.keys(node);
  const key = keys[random.integer(keys.length)];
  const strange = structuredClone(strangeValues[random.integer(strangeValues.length)]);
  if (key === undefined || random.integer(20) === 0) node[Array.isArray(tree) ? tree.length : "added"] = strange;
  else if (random.integer(10) < 7 && typeof node[key] === "object") changeOne(node[key], random);
  else node[key] = strange;
}

test("parameters that another release of the scheduler has are no misspellings", () => {
  const text = `kind: EndpointPickerConfig
plugins:
- type: prefix-cache-scorer
  parameters: { hashBlockSize: 5, maxPrefixBlocksToMatch: 256, lruCapacityPerServer: 31250, maxPrefixBlocks: 1 }
`;
  const { entries } = translate(text);
  const adviceOn = (key: string) => entries.find(({ theirs }) => theirs.endsWith(`parameters.${key}`))?.instead;
  expect(["hashBlockSize", "maxPrefixBlocksToMatch", "lruCapacityPerServer", "maxPrefixBlocks"].map(adviceOn)).toEqual([
    ...["`prefix.block-size`", "`policy.max-prefix-tokens`", "`prefix.placement-tokens`", "look for a misspelling"],
  ]);
});

/** One configuration with a plugin in its second line. */
const inner = ["kind: EndpointPickerConfig", "plugins: [{ type: queue-scorer }, { type: my-scorer }]"];
const indented = (spaces: number) => inner.map((line) => `${" ".repeat(spaces)}${line}\n`).join("");

test.each([
  ["a ConfigMap", `kind: ConfigMap\ndata:\n  epp.yaml: |\n${indented(4)}`, 'epp.yaml, data["epp.yaml"]:2:35'],
  ["the second document of a manifest", `kind: Service\n---\n${indented(0)}`, "epp.yaml:4:35"],
  [
    "the values of a chart, of which the chart takes one",
    `inferenceExtension:\n  pluginsConfigFile: b.yaml\n  pluginsCustomConfig:\n    a.yaml: |\n      kind: EndpointPickerConfig\n    b.yaml: |\n${indented(6)}`,
    'epp.yaml, inferenceExtension.pluginsCustomConfig["b.yaml"]:2:35',
  ],
  [
    "the values of a chart, as a section without its kind",
    `router:\n  epp:\n    pluginsConfig:\n      ${inner[1]}\n`,
    "epp.yaml:4:41",
  ],
])("a configuration inside %s is found, and its places are those of the file", (_, text, place) => {
  expect(settingsOf(text).policy).toMatchObject({ name: "epp_weighted" });
  expect(noteOn(text, "my-scorer")?.place).toBe(place);
});

test("the file of engines is found where llm-d.ai/v1 names it", () => {
  const text =
    "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- type: file-discovery\n  parameters: { path: /etc/engines.yaml }\n" +
    "dataLayer: { discovery: { endpoints: { pluginRef: file-discovery } } }\n";
  expect(settingsOf(text)["engines-file"]).toBe("/etc/engines.yaml");
  expect(noteOn(text, "--pool-name, --pool-namespace")).toBeUndefined();
});
