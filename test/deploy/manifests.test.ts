import { execFileSync } from "node:child_process";
import { loadConfig } from "@espalier/server";
import { Ajv } from "ajv";
import { describe, expect, test } from "vitest";
import { filesIn, parseYaml, readText, readYaml, root } from "./files.ts";
import { invalidFields, type KubernetesObject, unknownFields } from "./kubernetes-kinds.ts";
import { type Container, type DeploymentObject, findIn, readManifests } from "./manifests.ts";

interface Renderer {
  readonly exampleNames: readonly string[];
  readonly digestOf: (example: string) => string;
  readonly render: (helm: string, example: string) => string;
}

const { exampleNames, digestOf, render } = (await import(`${root}deploy/helm/render.mjs`)) as Renderer;
const helm = process.env.HELM ?? "helm";
const hasHelm = (() => {
  try {
    return execFileSync(helm, ["version", "--short"], { encoding: "utf8", stdio: "pipe" }).match(/^v[34]\./) !== null;
  } catch {
    return false;
  }
})();
if (!hasHelm)
  process.stderr.write(
    "NOT RUN: rendering the chart; needs Helm 3 or 4, on the path or named by HELM (go install helm.sh/helm/v3/cmd/helm@v3.18.6)\n",
  );

const chart = "deploy/helm/espalier";
/** What the chart gives with values of one's own, in the namespace `own`. */
function template(given: object): readonly KubernetesObject[] {
  const options = ["--kube-version", "1.33.0", "--namespace", "own", "--values", "-"];
  const rendered = execFileSync(helm, ["template", "e", `${root}${chart}`, ...options], {
    ...{ encoding: "utf8", input: JSON.stringify(given), stdio: "pipe" },
  });
  return parseYaml<KubernetesObject>(rendered, "the chart");
}

const values = readYaml<Record<string, unknown>>(`${chart}/values.yaml`)[0]!;
const schema = JSON.parse(readText(`${chart}/values.schema.json`)) as { readonly properties: object };
const engineFiles = filesIn("examples/kubernetes", ".yaml");
const gatewayFiles = filesIn("deploy/kubernetes/gateways", ".yaml");
const scalingFiles = filesIn("deploy/kubernetes/scaling", ".yaml");
/** `pickers.test.ts` has these. */
const pickerFiles = filesIn("deploy/kubernetes/pickers", ".yaml");

describe("the chart", () => {
  const accepts = new Ajv({ strict: true, allErrors: true, allowUnionTypes: true }).compile(schema);
  const examplesOf = (name: string) => readYaml<Record<string, unknown>>(`deploy/helm/examples/${name}.yaml`)[0]!;

  test("takes its own values and those of every example", () => {
    for (const given of [values, ...exampleNames.map(examplesOf)])
      expect([accepts(given), accepts.errors]).toEqual([true, null]);
  });

  test.each([
    [{ replica: 3 }, "must NOT have additional properties"],
    [{ replicas: 0 }, "must be >= 1"],
    [{ processes: "auto" }, "must be integer"],
    [{ mesh: { backend: "raft" } }, "must be equal to one of the allowed values"],
    [{ drain: { graceSeconds: "180s" } }, "must be integer"],
    [{ secret: { keys: { adminKey: "a b" } } }, "must match pattern"],
    [{ networkPolicy: { clients: [{}] } }, "must NOT have fewer than 1 properties"],
    [{ env: [{ value: "x" }] }, "must have required property 'name'"],
    [{ endpointPicker: { inferencePool: { targetPorts: [] } } }, "must NOT have fewer than 1 items"],
    [{ endpointPicker: { inferencePool: { failureMode: "Open" } } }, "must be equal to one of the allowed values"],
    [{ endpointPicker: { httpRoute: { requestTimeout: "1 hour" } } }, "must match pattern"],
    [{ ingress: { hosts: [""] } }, "must NOT have fewer than 1 characters"],
    [{ httpRoute: { parentRefs: [{ namespace: "infra" }] } }, "must have required property 'name'"],
  ])("refuses %j", (given, message) => {
    expect(accepts(given)).toBe(false);
    expect(accepts.errors?.map((error) => error.message)).toContainEqual(expect.stringContaining(message));
  });

  test.skipIf(!hasHelm)("says where its routers are, if that is given", () => {
    const meshOf = (given: object) => {
      const text = findIn(template(given)).find("ConfigMap")[0]?.data["espalier.yaml"] ?? "";
      return parseYaml<{ mesh: object }>(text, "the configuration")[0]?.mesh;
    };
    expect(meshOf({ mesh: { region: "eu-west-1" } })).toMatchObject({ backend: "peers", region: "eu-west-1" });
    expect(meshOf({})).not.toHaveProperty("region");
  });

  test.skipIf(!hasHelm)(
    "gives rights in the namespaces where routers are to be found by Kubernetes, and no others",
    () => {
      const seeds = { "seed-services": ["other/peers:mesh"], "seed-pods": [{ selector: "a=b", port: 7_946 }] };
      const { find } = findIn(template({ config: { mesh: seeds } }));
      const said = find("Role").map(({ metadata, rules }) => [
        metadata.namespace,
        rules.flatMap((rule) => rule.resources),
      ]);
      expect(said.sort()).toEqual([
        ["other", ["endpointslices"]],
        ["own", ["pods"]],
      ]);
    },
  );

  test.skipIf(!hasHelm)("has a way in from outside, rules, alerts and dashboards where they are asked for", () => {
    const hosts = ["llm.example", "chat.example"];
    const route = { enabled: true, hostnames: hosts, parentRefs: [{ name: "web", namespace: "infra" }] };
    const objects = template({
      ingress: { enabled: true, className: "nginx", hosts, tlsSecretName: "web-tls" },
      httpRoute: route,
      serviceMonitor: { enabled: true },
      prometheusRule: { enabled: true, labels: { release: "prometheus" } },
      grafanaDashboards: { enabled: true },
    });
    expect([invalidFields(objects), unknownFields(objects)]).toEqual([[], []]);
    const { find } = findIn(objects);
    const [service] = find("Service").filter(({ metadata }) => metadata.name === "e-espalier");
    const [ingress] = find("Ingress");
    expect(ingress?.spec.tls).toEqual([{ secretName: "web-tls", hosts }]);
    expect(ingress?.spec.rules.map(({ host }) => host)).toEqual(hosts);
    for (const { http } of ingress?.spec.rules ?? [])
      expect(http.paths.map(({ backend }) => backend.service)).toEqual([
        { name: service?.metadata.name, port: { name: "http" } },
      ]);
    const [httpRoute] = find("HTTPRoute");
    expect(httpRoute?.spec).toMatchObject({
      parentRefs: route.parentRefs,
      rules: [{ backendRefs: [{ name: service?.metadata.name, port: service?.spec.ports[0]?.port }] }],
    });

    const [rule] = find("PrometheusRule");
    const names = rule?.spec.groups.flatMap(({ rules }) => rules.map(({ record, alert }) => record ?? alert));
    const written = ["rules", "alerts"].flatMap((name) =>
      [...readText(`deploy/prometheus/${name}.yml`).matchAll(/- (?:record|alert): (\S+)/g)].map(([, each]) => each),
    );
    expect(names).toEqual(written);
    expect(JSON.stringify(rule)).toContain('up{job=\\"e-espalier-admin\\"} == 0');
    expect(find("Service").map(({ metadata }) => metadata.name)).toContain("e-espalier-admin");

    const dashboards = find("ConfigMap").filter(({ metadata }) => metadata.labels?.grafana_dashboard === "1");
    const files = Object.fromEntries(dashboards.flatMap(({ data }) => Object.entries(data)));
    expect(Object.keys(files).map((name) => `deploy/grafana/${name}`)).toEqual(filesIn("deploy/grafana", ".json"));
    for (const [name, text] of Object.entries(files))
      expect(JSON.parse(text)).toEqual(JSON.parse(readText(`deploy/grafana/${name}`)));

    expect(() => template({ httpRoute: { enabled: true } })).toThrow("httpRoute.parentRefs: needed");
    const [anywhere] = findIn(template({ ingress: { enabled: true } })).find("Ingress");
    expect(anywhere?.spec.rules).toEqual([expect.not.objectContaining({ host: expect.anything() })]);
    expect(findIn(template({})).find("Ingress")).toEqual([]);
  });

  test("has a default for everything that its schema names, and nothing else", () => {
    const named = Object.keys(schema.properties).filter((name) => name !== "global");
    expect(Object.keys(values).sort()).toEqual(named.sort());
  });

  test("uses every value that it has", () => {
    const templates = filesIn(`${chart}/templates`, "").filter((file) => /\.(?:yaml|tpl|txt)$/.test(file));
    const text = templates.map(readText).join("\n");
    for (const name of Object.keys(values)) expect(text).toContain(`.Values.${name}`);
  });

  test("has the version of the program", () => {
    const [about] = readYaml<{ readonly version: string; readonly appVersion: string }>(`${chart}/Chart.yaml`);
    const { version } = JSON.parse(readText("package.json")) as { readonly version: string };
    expect([about?.version, about?.appVersion]).toEqual([version, version]);
  });

  test("gives the manifests of deploy/kubernetes", () => {
    const files = filesIn("deploy/kubernetes", ".yaml").filter(
      (file) => ![...gatewayFiles, ...scalingFiles, ...pickerFiles].includes(file),
    );
    expect(files).toEqual(exampleNames.map((name) => `deploy/kubernetes/${name}.yaml`));
    for (const name of exampleNames) {
      const text = readText(`deploy/kubernetes/${name}.yaml`);
      // Who changes the chart or an example has to render: that needs Helm, this does not.
      expect(text, `node deploy/helm/render.mjs for ${name}`).toContain(`\n# inputs: ${digestOf(name)}\n`);
    }
  });

  test.skipIf(!hasHelm)("renders as what is committed", () => {
    for (const name of exampleNames) expect(render(helm, name)).toBe(readText(`deploy/kubernetes/${name}.yaml`));
  });

  test.skipIf(!hasHelm)("passes Helm's own check, and Helm refuses what the schema refuses", () => {
    for (const name of exampleNames) {
      const values = `deploy/helm/examples/${name}.yaml`;
      execFileSync(helm, ["lint", "--strict", chart, "--values", values], { cwd: root, stdio: "pipe" });
    }
    const refused = (...flags: string[]) =>
      expect(() =>
        execFileSync(helm, ["template", chart, "--kube-version", "1.33.0", ...flags], { cwd: root, stdio: "pipe" }),
      );
    refused("--set", "replicas=none").toThrow(/replicas/);
    refused("--set", "config.processes=2").toThrow(/config.processes/);
    refused("--set", "config.admin.tls.ca-file=/x").toThrow(/the kubelet has no certificate/);
    refused("--set", "endpointPicker.enabled=true").toThrow(/inferencePool.matchLabels: needed/);
    const enabled = ["--set", "endpointPicker.enabled=true,endpointPicker.inferencePool.matchLabels.app=vllm"];
    refused(...enabled, "--set", "config.endpoint-picker.port=9010").toThrow(/config.endpoint-picker.port/);
    refused(...enabled, "--set", "endpointPicker.httpRoute.create=true").toThrow(/httpRoute.parentRefs: needed/);
  });
});

test("what is deployed is valid for Kubernetes, without a field that it does not have", () => {
  const ours = exampleNames.map((name) => `deploy/kubernetes/${name}.yaml`);
  const all = [...ours, ...engineFiles, ...gatewayFiles, ...scalingFiles].flatMap((file) =>
    readYaml<KubernetesObject>(file),
  );
  expect(all.length).toBeGreaterThan(40);
  expect(invalidFields(all)).toEqual([]);
  expect(unknownFields(all)).toEqual([]);
});

test("image and chart have the version of the release, and the next release's in every file that names one", async () => {
  const { version } = JSON.parse(readText("package.json")) as { readonly version: string };
  const [chartFile] = readYaml<{ readonly version: string; readonly appVersion: string }>(`${chart}/Chart.yaml`);
  expect([chartFile?.version, chartFile?.appVersion]).toEqual([version, version]);
  const { deployedFiles, withVersion } = (await import(`${root}deploy/deployed-version.mjs`)) as {
    readonly deployedFiles: readonly string[];
    readonly withVersion: (text: string, last: string, next: string) => string;
  };
  const next = deployedFiles.map((file) => [file, withVersion(readText(file), version, "98.7.6")] as const);
  for (const [file, text] of next)
    expect([file, text.includes("98.7.6"), text.includes(version)]).toEqual([file, true, false]);
  const rendered = exampleNames.map((name) => `deploy/kubernetes/${name}.yaml`);
  const files = ["deploy", "docs/guides", "docs/start"].flatMap((folder) =>
    ["Dockerfile", ".yaml", ".md"].flatMap((ending) => filesIn(folder, ending)),
  );
  const naming = files.filter((file) => readText(file).includes(`espalier:${version}`));
  expect(naming.filter((file) => ![...deployedFiles, ...rendered].includes(file))).toEqual([]);
});

test("autoscalers scale the example's engines, by a metric and a port that routers have", () => {
  const engines = engineFiles.flatMap((file) => readYaml<KubernetesObject>(file));
  const scaling = scalingFiles.flatMap((file) => readYaml<ScalingObject>(file));
  const scaled = scaling.filter(({ spec }) => spec.scaleTargetRef);
  expect(scaled.map(({ kind }) => kind).sort()).toEqual(["HorizontalPodAutoscaler", "ScaledObject"]);
  for (const { spec, metadata } of scaled) {
    expect(engines).toContainEqual(
      expect.objectContaining({
        kind: "Deployment",
        metadata: expect.objectContaining({ name: spec.scaleTargetRef!.name, namespace: metadata.namespace }),
      }),
    );
  }
  const { metadata } = scaled.flatMap(({ spec }) => spec.triggers ?? [])[0]!;
  const [service] = scaling.filter(({ kind }) => kind === "Service");
  const [port] = service!.spec.ports!;
  expect(metadata.scalerAddress).toBe(`${service!.metadata.name}.${service!.metadata.namespace}.svc:${port!.port}`);
  const written = /^#\s+scale: (.*)$/m.exec(readText("deploy/kubernetes/scaling/keda.yaml"))![1]!;
  const { scale } = loadConfig({ file: { path: "values.yaml", text: `scale: ${written}` } });
  expect(scale).toMatchObject({ host: "0.0.0.0", port: port!.targetPort });
  const rule = readText("deploy/kubernetes/scaling/hpa.yaml");
  expect(rule).toContain("espalier_scale_desired_engines");
  expect(readText("docs/METRICS.md")).toContain("`espalier_scale_desired_engines`");
});

/** What the test of autoscalers reads. */
interface ScalingObject extends KubernetesObject {
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly spec: {
    readonly scaleTargetRef?: { readonly name: string };
    readonly triggers?: readonly { readonly metadata: { readonly scalerAddress: string } }[];
    readonly ports?: readonly { readonly port: number; readonly targetPort: number }[];
  };
}

describe.each(exampleNames)("%s", (name) => {
  const { objects, find, deployment, container, config, compile, watchedNamespaces } = readManifests(
    `deploy/kubernetes/${name}.yaml`,
  );
  const pod = deployment.spec.template.spec;

  test("its configuration is one that a router takes", () => {
    const compiled = compile();
    const backend = container.env.some((variable) => variable.name === "ESPALIER_MESH_REDIS_URL") ? "redis" : "peers";
    expect(compiled.mesh.backend).toBe(backend);
    expect([compiled.listen.port, compiled.admin.port]).toEqual([8080, 9090]);
    // SIGTERM comes after the sleep; the router then needs its delay and its grace, and some seconds to leave.
    const sleepMs = (container.lifecycle?.preStop.sleep.seconds ?? 0) * 1_000;
    const needed = sleepMs + compiled.drain.delayMs + compiled.drain.graceMs;
    expect(pod.terminationGracePeriodSeconds * 1_000).toBeGreaterThanOrEqual(needed + 5_000);
  });

  test("services select the pods and name ports that they have; routers find each other before they are ready", () => {
    const labels = deployment.spec.template.metadata.labels;
    const names = container.ports.map((port) => port.name);
    for (const service of find("Service")) {
      expect(labels).toMatchObject(service.spec.selector);
      for (const { targetPort } of service.spec.ports) expect(names).toContain(targetPort);
    }
    expect(labels).toMatchObject(deployment.spec.selector.matchLabels);
    const peers = find("Service").filter(({ spec }) => spec.clusterIP === "None");
    expect(peers.length).toBe(names.includes("mesh") ? 1 : 0);
    for (const { spec, metadata } of peers) {
      expect(spec.publishNotReadyAddresses).toBe(true);
      expect(config).toContain(`- ${metadata.name}.${metadata.namespace}.svc:7946`);
    }
  });

  test("probes ask where the router answers them without a key", () => {
    const { startupProbe, livenessProbe, readinessProbe } = container;
    const { endpointPicker } = compile();
    if (endpointPicker) {
      const port = endpointPicker.healthPort;
      for (const { grpc } of [startupProbe, livenessProbe]) expect(grpc).toEqual({ port, service: "liveness" });
      expect(readinessProbe.grpc).toEqual({ port, service: "readiness" });
      expect(container.ports).toContainEqual({ name: "health", containerPort: port });
    } else {
      for (const { httpGet } of [startupProbe, livenessProbe])
        expect(httpGet).toMatchObject({ path: "/livez", port: "admin" });
      expect(readinessProbe.httpGet).toMatchObject({ path: "/readyz", port: "admin" });
    }
    // Readiness is noticed within the time in which a draining router still takes requests.
    expect(readinessProbe.periodSeconds * readinessProbe.failureThreshold).toBeLessThanOrEqual(5);
  });

  test("the pod has no rights, and is allowed to ask the API server only where it has to", () => {
    expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } });
    expect(container.securityContext).toEqual({
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    });
    const roles = find("Role");
    expect(roles.map(({ metadata }) => metadata.namespace).sort()).toEqual(watchedNamespaces);
    expect(pod.automountServiceAccountToken).toBe(watchedNamespaces.length > 0);
    for (const role of roles) {
      for (const { verbs } of role.rules) expect(verbs).toEqual(["list", "watch"]);
      const binding = find("RoleBinding").find(({ metadata }) => metadata.namespace === role.metadata.namespace);
      expect([binding?.roleRef.name, binding?.subjects[0]?.name]).toEqual([role.metadata.name, pod.serviceAccountName]);
    }
    const resources = new Set(roles.flatMap(({ rules }) => rules.flatMap((rule) => rule.resources)));
    expect(resources.has("endpointslices")).toBe(/\n {2}services:/.test(config));
    expect(resources.has("pods")).toBe(/\n {2}(?:pods|inference-pools):/.test(config));
    for (const kind of ["inferencepools", "inferenceobjectives", "inferencemodelrewrites"])
      expect(resources.has(kind)).toBe(/\n {2}inference-pools:/.test(config));
  });

  test("what mounts and variables name is there", () => {
    const volumes = pod.volumes.map((volume) => volume.name);
    for (const mount of container.volumeMounts) expect(volumes).toContain(mount.name);
    expect(new Set(volumes).size).toBe(container.volumeMounts.length);
    const read = [...config.matchAll(/(?:-file|path): (\/\S+)/g)].map(([, path]) => path!);
    const mounted = container.volumeMounts.map((mount) => mount.mountPath);
    for (const path of read) expect(mounted.some((folder) => path.startsWith(folder))).toBe(true);
    for (const [, variable] of config.matchAll(/\$\{(\w+)\}/g))
      expect(container.env.map((one) => one.name)).toContain(variable);
    for (const { name: variable, value } of container.env) expect([variable, value]).toEqual([variable, undefined]);
  });

  test("one router at a time goes, for upgrades, for nodes that are drained, and when there are fewer to do", () => {
    expect(deployment.spec.strategy.rollingUpdate).toEqual({ maxSurge: 1, maxUnavailable: 0 });
    expect(find("PodDisruptionBudget").map(({ spec }) => spec.maxUnavailable)).toEqual([1]);
    const [scaler] = find("HorizontalPodAutoscaler");
    expect(deployment.spec.replicas === undefined).toBe(scaler !== undefined);
    if (scaler) expect(scaler.spec.scaleTargetRef.name).toBe(deployment.metadata.name);
    expect(pod.topologySpreadConstraints).toHaveLength(2);
  });

  test("only routers reach the mesh, and the admin port is not for everybody", () => {
    const [policy] = find("NetworkPolicy");
    const ports = policy!.spec.ingress.map(({ ports, from }) => [ports[0]!.port, from === undefined]);
    expect(ports).toContainEqual(["admin", false]);
    for (const [port, isOpen] of ports) if (port !== "http") expect(isOpen).toBe(false);
    const mesh = policy!.spec.ingress.find((rule) => rule.ports[0]!.port === "mesh");
    expect(mesh?.from ?? []).toEqual(
      container.ports.some((port) => port.name === "mesh")
        ? [{ podSelector: { matchLabels: deployment.spec.selector.matchLabels } }]
        : [],
    );
    expect(objects.every(({ metadata }) => metadata.namespace !== undefined)).toBe(true);
  });
});

describe("endpoint pickers", () => {
  const { find, container, compile, deployment } = readManifests("deploy/kubernetes/endpoint-picker.yaml");
  const [pool] = find("InferencePool");
  const service = find("Service").find(({ metadata }) => metadata.name === pool?.spec.endpointPickerRef.name);

  test("the pool names a Service of theirs, at their port, and each of them follows the pool", () => {
    const { endpointPicker, discovery } = compile();
    const { kind, port, failureMode } = pool!.spec.endpointPickerRef;
    expect([kind, failureMode]).toEqual(["Service", "FailClose"]);
    expect(endpointPicker).toMatchObject({ host: "0.0.0.0", port: 9_002, healthPort: 9_003, fallbacks: 0 });
    expect(service?.spec.ports).toEqual([expect.objectContaining({ port: port.number, targetPort: "ext-proc" })]);
    expect(container.ports).toContainEqual({ name: "ext-proc", containerPort: endpointPicker?.port });
    expect(discovery.inferencePools).toMatchObject([
      { namespace: undefined, pool: pool?.metadata.name, objectives: true, modelRewrites: true },
    ]);
    const places = [pool, service, deployment].map((object) => object?.metadata.namespace);
    expect(new Set(places).size).toBe(1);
    expect(deployment.spec.replicas).toBe(3);
  });

  test("the pool is of the engines of the example, at the port that they have", () => {
    const [engines] = readYaml<DeploymentObject>("examples/kubernetes/vllm.yaml").filter(
      ({ kind }) => kind === "Deployment",
    );
    const { metadata, spec } = engines!.spec.template;
    expect(metadata.labels).toMatchObject(pool!.spec.selector.matchLabels);
    const ports = spec.containers[0]!.ports.map(({ containerPort }) => containerPort);
    for (const { number } of pool!.spec.targetPorts) expect(ports).toContain(number);
  });

  test.each(gatewayFiles)("%s is the gateway that the route is for, and lets it in", (file) => {
    const [route] = find("HTTPRoute");
    const gateway = readYaml<KubernetesObject>(file).find(({ kind }) => kind === "Gateway");
    const { name, namespace } = gateway!.metadata;
    expect(route?.spec.parentRefs).toEqual([{ name, namespace }]);
    expect(route?.spec.rules.flatMap(({ backendRefs }) => backendRefs)).toEqual([
      { group: "inference.networking.k8s.io", kind: "InferencePool", name: pool?.metadata.name },
    ]);
    expect(JSON.stringify(gateway)).toContain(`"kubernetes.io/metadata.name":"${route?.metadata.namespace}"`);
    const text = readText(file);
    expect(text).toContain("not run in a");
    // Rules about the picker name its Service.
    for (const [, host] of text.matchAll(/(?:host|sni): (\S+)/g))
      expect(host).toContain(`${service?.metadata.name}.${service?.metadata.namespace}.svc`);
  });
});

test("the engines of the examples publish their KV events, apart from each other", () => {
  expect(engineFiles.length).toBeGreaterThan(0);
  for (const file of engineFiles) {
    const engines = readYaml<DeploymentObject>(file).filter(({ kind }) => kind === "Deployment");
    expect(engines.length).toBeGreaterThan(0);
    for (const { spec } of engines) {
      const container = spec.template.spec.containers[0] as Container;
      expect(container.args?.join(" ")).toMatch(/kv-events-config .*"enable_kv_cache_events": ?true/);
    }
  }
});
