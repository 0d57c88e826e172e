import type { EngineTraits } from "@espalier/core";
import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import { parseWatchLine } from "../../src/discovery/kubernetes/api-objects.ts";
import { readEndpointSlice } from "../../src/discovery/kubernetes/endpoint-slice.ts";
import { readObjective, readRewrite } from "../../src/discovery/kubernetes/inference-objects.ts";
import { readInferencePool } from "../../src/discovery/kubernetes/inference-pool-source.ts";
import { createLineSplitter } from "../../src/discovery/kubernetes/kubernetes-client.ts";
import { readPod } from "../../src/discovery/kubernetes/pod.ts";

const traits: EngineTraits = {
  ...{ labels: {}, scheme: "http", models: [], role: "both", weight: 1, ranks: 1, firstRank: undefined },
  ...{
    region: undefined,
    kvEventsPort: undefined,
    kvReplayPort: undefined,
    kvTopic: "",
    kvTransfer: undefined,
    kvTransferPort: undefined,
    kvPull: undefined,
    kvPullPort: undefined,
  },
};
const line = (value: unknown): Uint8Array => new TextEncoder().encode(`${JSON.stringify(value)}\n`);

const hints = { "espalier.dev/models": "a,b", "espalier.dev/weight": "2", "espalier.dev/kv-transfer": "nixl" };
const metadata = { name: "a", namespace: "n", resourceVersion: "5", annotations: hints, labels: { app: "x" } };
const slice = {
  ...{ metadata, addressType: "IPv4", ports: [{ name: "http", port: 8_000 }] },
  endpoints: [
    { addresses: ["10.0.0.1"], conditions: { ready: true }, targetRef: { kind: "Pod", name: "p" }, zone: "z" },
  ],
};
const pod = {
  metadata,
  spec: { nodeName: "n", containers: [{ ports: [{ name: "http", containerPort: 8_000 }] }] },
  status: { phase: "Running", podIP: "fd00::1", conditions: [{ type: "Ready", status: "True" }] },
};
const pool = { metadata, spec: { selector: { matchLabels: { app: "x" } }, targetPorts: [{ number: 8_000 }] } };
const poolRef = { name: "chat" };
const objective = { metadata, spec: { poolRef, priority: 5 } };
const rewriteRule = {
  matches: [{ model: { type: "Exact", value: "a" } }],
  targets: [
    { modelRewrite: "b", weight: 9 },
    { modelRewrite: "c", weight: 1 },
  ],
};
const rewrite = { metadata, spec: { poolRef, rules: [rewriteRule, { targets: [{ modelRewrite: "d" }] }] } };

const maxLineBytes = 32_768;

const target: FuzzTarget = {
  name: "Kubernetes watch",
  seeds: [
    ...[slice, pod, pool, objective, rewrite].map((object) => line({ type: "ADDED", object })),
    line({ type: "ERROR", object: { kind: "Status", code: 410, message: "too old" } }),
    line({ type: "BOOKMARK", object: { metadata: { resourceVersion: "9" } } }),
  ],
  // What the splitter throws ends the watch, which begins anew.
  refuses: (thrown) => thrown instanceof RangeError || thrown instanceof TypeError,
  read(bytes, random) {
    const splitter = createLineSplitter(maxLineBytes);
    const middle = random.integer(bytes.length + 1);
    const lines = [...splitter.push(bytes.subarray(0, middle)), ...splitter.push(bytes.subarray(middle))];
    for (const text of lines) check(text);
  },
};

function check(text: string): void {
  let event: ReturnType<typeof parseWatchLine>;
  try {
    event = parseWatchLine(text);
    if (event?.kind !== "set") return;
    const found = [readEndpointSlice(event.object, "http", traits), readPod(event.object, [80, "http"], traits)];
    for (const { spec } of found.flatMap(({ engines }) => engines)) {
      expect(new URL(spec.url).port).toMatch(/^\d*$/);
      expect(spec.weight).toBeGreaterThan(0);
    }
    expect(readInferencePool(event.object).ports.length).toBeLessThanOrEqual(8);
    const said = readObjective(event.object, "chat");
    if (said?.kind === "objective") expect(Number.isInteger(said.priority)).toBe(true);
    for (const { models, targets } of readRewrite(event.object, "chat")?.rewrite.rules ?? []) {
      expect([...models, ...targets.map(({ model }) => model)]).not.toContain("");
      for (const { weight } of targets) expect(weight).toBeGreaterThan(0);
      expect(targets.length).toBeGreaterThan(0);
    }
  } catch (error) {
    // Not to be taken for what the splitter throws.
    throw new Error(`reading ${text.slice(0, 100)}`, { cause: error });
  }
}

fuzzInFile(test, "whatever comes is read, or left out", [target]);
