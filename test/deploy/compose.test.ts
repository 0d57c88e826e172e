import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { loadConfig } from "@espalier/server";
import { expect, test } from "vitest";
import { filesIn, readText, readYaml, root } from "./files.ts";

interface Service {
  readonly image: string;
  readonly command?: string | readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly hostname?: string;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly stop_grace_period?: string;
}

interface Compose {
  readonly services: Readonly<Record<string, Service>>;
}

const folder = "deploy/compose";
const { services } = readYaml<Compose>(`${folder}/compose.yaml`, { merge: true })[0]!;
const routers = Object.entries(services).filter(([name]) => name.startsWith("router-"));
const configText = readText(`${folder}/espalier.yaml`);
const config = loadConfig({
  file: { path: "espalier.yaml", text: configText },
  env: routerEnv({}),
});

/** The variables that a router has, where its user has given these to compose. */
function routerEnv(given: Readonly<Record<string, string>>): Record<string, string> {
  const written = Object.entries(routers[0]![1].environment!);
  return Object.fromEntries(
    written.map(([name, text]) => [
      name,
      text.replace(/\$\{(\w+):-(.*?)\}/g, (_, variable: string, otherwise: string) => given[variable] ?? otherwise),
    ]),
  );
}

test("each router has as many processes as the user says", () => {
  const processesOf = (env: Record<string, string>) =>
    loadConfig({ file: { path: "espalier.yaml", text: configText }, env }).processes;
  expect(processesOf(routerEnv({}))).toBe(1);
  expect(processesOf(routerEnv({ ESPALIER_PROCESSES: "2" }))).toBe(2);
});

test("three routers find each other by the names that compose gives them", () => {
  expect(routers.map(([name, { hostname }]) => [name, hostname])).toEqual(
    ["router-1", "router-2", "router-3"].map((name) => [name, name]),
  );
  expect(config.mesh.seeds.map((seed) => JSON.stringify(seed)).join()).toMatch(/router-1.*router-2.*router-3/s);
  const { delayMs, graceMs } = config.drain;
  for (const [, { stop_grace_period: grace }] of routers)
    expect(Number.parseInt(grace!, 10) * 1_000).toBeGreaterThan(delayMs + graceMs);
});

test("the engines are those that compose starts, with the model whose tokenizer the routers have", () => {
  const { command } = services.engines!;
  const flags = typeof command === "string" ? command : command!.join(" ");
  const flagOf = (flag: string) => new RegExp(`--${flag} (\\S+)`).exec(flags)?.[1];
  const first = Number(flagOf("port"));
  const count = Number(flagOf("engines"));
  expect(config.engines.map(({ url }) => url)).toEqual(
    Array.from({ length: count }, (_, at) => `http://engines:${first + at}`),
  );
  expect(configText).toContain(`models: [${flagOf("model")}]`);
  expect(configText).toContain(`/app/packages/tokenizer/models/${flagOf("tokenizer")} }`);
});

test("Prometheus asks each router with the key that it has, by the rules and alerts of this repository", () => {
  const [prometheus] = readYaml<{
    readonly rule_files: readonly string[];
    readonly scrape_configs: readonly {
      readonly authorization: { readonly credentials_file: string };
      readonly static_configs: readonly { readonly targets: readonly string[] }[];
    }[];
  }>("deploy/prometheus/prometheus.yml");
  const [scrape] = prometheus!.scrape_configs;
  expect(scrape!.static_configs[0]!.targets).toEqual(routers.map(([name]) => `${name}:${config.admin.port}`));
  expect(scrape!.authorization.credentials_file).toBe("/run/secrets/admin-key");
  expect(readText(`${folder}/admin-key`)).toBe(routers[0]![1].environment!.ESPALIER_ADMIN_KEY);
  const files = filesIn("deploy/prometheus", ".yml").map((file) => file.split("/").at(-1));
  expect([...prometheus!.rule_files, "prometheus.yml"].sort()).toEqual(files);
});

test("Grafana shows the dashboards of this repository from that Prometheus", () => {
  const [provider] = readYaml<{ readonly providers: readonly { readonly options: { readonly path: string } }[] }>(
    `${folder}/grafana/dashboards/espalier.yaml`,
  );
  const { path } = provider!.providers[0]!.options;
  expect(services.grafana!.volumes).toContain(`../grafana:${path}:ro`);
  const home = services.grafana!.environment!.GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH!;
  expect(filesIn("deploy/grafana", ".json")).toContain(home.replace(path, "deploy/grafana"));
  const [source] = readYaml<{ readonly datasources: readonly { readonly url: string }[] }>(
    `${folder}/grafana/datasources/prometheus.yaml`,
  );
  expect(source!.datasources[0]!.url).toBe("http://prometheus:9090");
});

test("nothing of it is served beyond this machine, and every image has a version", () => {
  for (const { image, ports = [] } of Object.values(services)) {
    expect(image).toMatch(/:v?\d+\.\d+\.\d+$/);
    for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:/);
  }
});

const podmanCompose = "podman-compose";
const isRead = spawnSync(podmanCompose, ["version"]).status === 0;
if (!isRead) process.stderr.write("NOT RUN: compose as Podman takes it; needs podman-compose and podman\n");

if (isRead)
  test("podman-compose makes a container of each service, with what it mounts, and no port that others reach", () => {
    const up = ["--dry-run", "-f", `${root}${folder}/compose.yaml`, "up", "--build", "--detach"];
    const output = execFileSync(podmanCompose, up, { encoding: "utf8", stdio: "pipe" });
    const runs = output.split("\n").filter((line) => line.startsWith("podman run "));
    const after = (line: string, flag: string) =>
      [...line.matchAll(new RegExp(` ${flag} (\\S+)`, "g"))].map(([, word]) => word!);
    expect(runs.flatMap((line) => after(line, "--network-alias")).sort()).toEqual(Object.keys(services).sort());
    for (const line of runs) {
      const [name = ""] = after(line, "--network-alias");
      const { image, ports = [] } = services[name]!;
      expect(line).toContain(` ${image}`);
      expect(after(line, "-p")).toEqual(ports);
      for (const mount of after(line, "-v")) expect([mount, existsSync(mount.split(":")[0]!)]).toEqual([mount, true]);
    }
    expect(output).toContain(`podman build -t ${routers[0]![1].image} -f ../../deploy/docker/Dockerfile ../..`);
  });
