import { loadConfig } from "@espalier/server";
import { connectGateway } from "@espalier/server/gateway-client";
import { type ApiObject, createKubernetesApi, waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { engines, temporaryFile } from "../e2e/files.ts";
import { start } from "../e2e/program.ts";
import { PlayedExchange } from "../integration/gateway.ts";
import { serveApi } from "../integration/kubernetes-server.ts";
import { createRig } from "../integration/rig.ts";
import { readYaml } from "./files.ts";
import { readByHand } from "./kinds-by-hand.ts";
import { invalidFields, type KubernetesObject, unknownFields } from "./kubernetes-kinds.ts";

interface Variable {
  readonly name: string;
  readonly value?: string;
}

interface PickerContainer {
  readonly name: string;
  readonly env: readonly Variable[];
  readonly ports: readonly { readonly containerPort: number }[];
  readonly volumeMounts: readonly { readonly mountPath: string }[];
}

interface LlmInferenceService extends KubernetesObject {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly router: { readonly scheduler: { readonly template: { readonly containers: readonly PickerContainer[] } } };
  };
}

interface LlmdValues {
  readonly router: {
    readonly modelServers: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly epp: {
      readonly replicas: number;
      readonly flags: Readonly<Record<string, unknown>>;
      readonly pluginsConfigFile: string;
      readonly pluginsCustomConfig: Readonly<Record<string, string>>;
      readonly env: readonly Variable[];
      readonly extraContainerPorts: readonly { readonly containerPort: number }[];
    };
  };
}

const kserve = readYaml<KubernetesObject>("deploy/kubernetes/pickers/kserve.yaml");
const service = kserve.find(({ kind }) => kind === "LLMInferenceService") as LlmInferenceService;
const { template } = service.spec.router.scheduler;
const main = template.containers[0]!;
const kserveConfig = (kserve[0] as KubernetesObject & { readonly data: Record<string, string> }).data["espalier.yaml"]!;
const values = readYaml<LlmdValues>("deploy/kubernetes/pickers/llm-d-values.yaml")[0]!;
const { epp } = values.router;
const llmdConfig = epp.pluginsCustomConfig[epp.pluginsConfigFile]!;
/** What the values say the release is called. */
const release = "llama";
const namespace = "llm";
const theirPlugins = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n";

/**
 * The command line of KServe's preset `config-llm-scheduler` without TLS, whose conditional words are then empty, and what
 * its controller adds for several replicas (commit aaac4e2).
 */
const kserveLine = [
  ...["--pool-name", `${service.metadata.name}-inference-pool`, "--pool-namespace", service.metadata.namespace],
  ...["--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003", "", "", "", ""],
  ...["--ha-enable-leader-election", "--config-text", theirPlugins],
];

/** The command line that llm-d's chart renders of our values (`routerlib/templates/_deployment.yaml`, commit ebab687). */
const llmdLine = [
  ...["--pool-name", release, "--pool-namespace", namespace, "--pool-group", "inference.networking.k8s.io"],
  ...["--zap-encoder", "json", "--config-file", `/config/${epp.pluginsConfigFile}`],
  ...(epp.replicas > 1 ? ["--ha-enable-leader-election"] : []),
  ...["--grpc-health-port", "9003"],
  ...Object.entries(epp.flags).map(([flag, value]) => `--${flag}=${value}`),
  "--tracing=false",
];

/** Variables as a pod has them, the Secret's with a value that a Secret could hold. */
const envOf = (variables: readonly Variable[]): Record<string, string> =>
  Object.fromEntries(variables.map(({ name, value }) => [name, value ?? "0123456789abcdef0123456789abcdef"]));

test("KServe's API takes the service, and a pod has every field of the scheduler's template", () => {
  expect(invalidFields(kserve)).toEqual([]);
  const labels = { app: "a" };
  const pods: KubernetesObject = {
    ...{ apiVersion: "apps/v1", kind: "Deployment", metadata: { name: "a" } },
    ...{ spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: template } } },
  };
  expect([invalidFields([pods]), unknownFields([pods, kserve[0]!])]).toEqual([[], []]);
  // KServe adds its arguments to the container of this name, and merges the rest by it.
  expect(main.name).toBe("main");
  expect(main.env.find(({ name }) => name === "ESPALIER_CONFIG")?.value).toBe(
    `${main.volumeMounts[0]!.mountPath}/espalier.yaml`,
  );
});

test("llm-d's chart has every value", () => {
  expect(readByHand("llm-d-router-gateway/values", values)).toEqual([]);
  const misspelt = { router: { ...values.router, epp: { ...epp, flgas: {} } } };
  expect(readByHand("llm-d-router-gateway/values", misspelt)).toHaveLength(1);
});

test("pickers follow the pool that is made for them, and find each other by the labels that they have", () => {
  const labels = `app.kubernetes.io/name=${service.metadata.name},app.kubernetes.io/component=llminferenceservice-router-scheduler`;
  for (const [text, env, pool, selector, ports] of [
    [kserveConfig, envOf(main.env), `${service.metadata.name}-inference-pool`, labels, main.ports],
    [llmdConfig, envOf(epp.env), release, `llm-d-router-gateway=${release}-epp`, epp.extraContainerPorts],
  ] as const) {
    const config = loadConfig({ file: { path: "espalier.yaml", text }, env: { NAMESPACE: namespace, ...env } });
    expect(config.discovery.inferencePools).toMatchObject([{ pool }]);
    const { port } = config.mesh;
    expect(ports.map(({ containerPort }) => containerPort)).toEqual([port]);
    expect(text).toContain(`- selector: ${selector}\n`);
    expect(config.mesh.cluster).toBe(`${namespace}.${service.metadata.name}`);
  }
});

const rig = createRig();
afterEach(() => rig.close());

/** A cluster with the pool, and one engine in it. */
async function cluster(pool: string): Promise<{ readonly apiServer: string; readonly engine: string }> {
  const [url = ""] = await engines({ engines: 1 });
  const { host, port } = new URL(url);
  const api = createKubernetesApi();
  const matchLabels = { app: "vllm" };
  const spec = { selector: { matchLabels }, targetPorts: [{ number: Number(port) }] };
  api.put(`/apis/inference.networking.k8s.io/v1/namespaces/${namespace}/inferencepools`, {
    ...{ metadata: { name: pool }, spec },
  });
  const pod: ApiObject = {
    metadata: { name: "a", namespace, labels: matchLabels },
    status: { phase: "Running", podIP: "127.0.0.1", conditions: [{ type: "Ready", status: "True" }] },
  };
  api.put(`/api/v1/namespaces/${namespace}/pods`, pod);
  return { apiServer: await serveApi(rig, api), engine: host };
}

test.each([
  ["KServe", kserveLine, kserveConfig.replace(", scheme: https", ""), envOf(main.env)],
  ["llm-d's chart", llmdLine, llmdConfig, envOf(epp.env)],
])(
  "%s starts the picker by its own command line, and a gateway gets an engine of the pool",
  async (_, line, text, env) => {
    const { apiServer, engine } = await cluster(line[1]!);
    const config = temporaryFile("espalier.yaml", text);
    const isKserve = "ESPALIER_CONFIG" in env;
    // The ports are those of the machine that tests run on: any free ones.
    const args = line
      .map((word) => (word.startsWith("/config/") ? config : /^900[23]$/.test(word) ? "0" : word))
      .concat(isKserve ? ["--secure-serving=false"] : ["--grpc-port=0"], "--metrics-port=0");
    const picker = start(args, {
      env: {
        ...env,
        ...{ NAMESPACE: namespace, ESPALIER_DISCOVERY_KUBERNETES_API_SERVER: apiServer },
        ...{ ESPALIER_LISTEN_PORT: "0", ESPALIER_MESH_PORT: "0", ESPALIER_MESH_HOST: "127.0.0.1" },
        ...(isKserve ? { ESPALIER_CONFIG: config } : {}),
      },
    });
    const [, adminUrl = "", address = ""] = await picker.until(/metrics and admin at (\S+), gateways at (\S+)/);
    const headers = { authorization: `Bearer ${env.ESPALIER_ADMIN_KEY}` };
    const admin = adminUrl.replace("0.0.0.0", "127.0.0.1");
    const isUp = async () => {
      const response = await fetch(`${admin}/admin/engines`, { headers });
      const { engines: known } = (await response.json()) as { engines: readonly { id: string; state: string }[] };
      return known.some(({ id, state }) => id === engine && state === "up");
    };
    await waitFor(isUp, { what: "the pool's engine is up", deadlineMs: 60_000 });
    const gateway = connectGateway(address.replace("0.0.0.0", "127.0.0.1"));
    rig.own(() => gateway.close());
    const exchange = new PlayedExchange(gateway.open()).head();
    const routed = await exchange.body(JSON.stringify({ model: "tiny", messages: [] })).routed();
    expect(routed.destinations).toEqual([engine]);
    expect(picker.stderr()).toMatch(isKserve ? /`espalier migrate --from llm-d` translates/ : /serves at/);
  },
);
