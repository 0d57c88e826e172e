import { statSync } from "node:fs";
import { createServer } from "node:net";
import { totalmem } from "node:os";
import { plainHost, silentLogger } from "@espalier/core";
import { type CompiledConfig, createRouter, loadPlugins, maxEventSockets, shareDescriptors } from "@espalier/server";
import { type CheckRow, type Finding, fail, pass, reasonOf, warn } from "./check.ts";
import type { Examined } from "./examined.ts";

/** This machine, before anything is asked. */
export const machineChecks: readonly CheckRow<Pick<Examined, "node" | "openFiles">>[] = [
  { name: "node", run: ({ node }) => [checkNode(node)] },
  { name: "open-files", run: ({ openFiles }) => [checkOpenFiles(openFiles)] },
];

/** What a router of this configuration needs of this machine. */
export const ownChecks: readonly CheckRow<Examined>[] = [
  { name: "start", run: checkStart },
  { name: "open-files", applies: ({ openFiles }) => Number.isFinite(openFiles), run: checkShares },
  {
    name: "memory",
    run: ({ config }) => checkMemory(config, Math.min(process.constrainedMemory() || Infinity, totalmem())),
  },
  {
    name: "secrets",
    run: ({ config, secretFiles }) => [...checkSecret(config), ...checkSecretFiles(config, secretFiles)],
  },
  { name: "listeners", run: checkListeners },
];

const oldestNode = 24;

const checkNode = (node: string): Finding =>
  Number.parseInt(node, 10) < oldestNode
    ? fail("", `${node} is too old`, { fix: `install Node ${oldestNode} or newer` })
    : pass("", node);

/** Below this, a router serves a few hundred clients at most. */
const wantedOpenFiles = 4_096;
const raise = "raise the limit: `ulimit -n 65536`, or LimitNOFILE=65536 in systemd";

function checkOpenFiles(openFiles: number): Finding {
  const files = openFiles === Number.POSITIVE_INFINITY ? "unlimited or unknown" : `${openFiles} at once`;
  return openFiles < wantedOpenFiles ? fail("", files, { fix: raise }) : pass("", files);
}

/** Whether the limit of open files is enough for the engines, their event sockets and the configured clients. */
function checkShares({ config, fleet, openFiles }: Examined): readonly Finding[] {
  const engines = fleet.fleet.engines.length;
  const feeds = config.kvEvents.mode === "off" ? 0 : fleet.fleet.engines.flatMap(({ targets }) => targets).length;
  const sockets = maxEventSockets(openFiles - engines);
  if (feeds > sockets) {
    const message = `${openFiles} open files allow ${sockets} event sockets for ${feeds} targets`;
    return [fail("", message, { setting: "kv-events.mode", fix: raise })];
  }
  const { clients } = shareDescriptors(openFiles, () => fleet.openEventFiles);
  return [pass("", `enough for ${clients} clients and ${sockets} event sockets`)];
}

const gibibytes = (bytes: number): string => `${(bytes / 2 ** 30).toFixed(1)} GiB`;

/** Requests' bodies and kept answers alone must not fill the memory. @param limitBytes of the container, or of the machine */
export function checkMemory({ limits, resume }: CompiledConfig, limitBytes: number): readonly Finding[] {
  const bodies = limits.maxBodyBytesInFlight + resume.maxBytesInFlight;
  const has = `${gibibytes(limitBytes)} for this process`;
  if (bodies < limitBytes) return [pass("", has)];
  const message = `${has}, but requests in flight may hold ${gibibytes(bodies)}`;
  return [
    warn("", message, { setting: "limits.max-body-bytes-in-flight", fix: "lower it, or raise the memory limit" }),
  ];
}

/** Builds the router: certificates, plugins and policies are read as at its start. Nothing listens or dials. */
async function checkStart({ config, openFiles, version }: Examined): Promise<readonly Finding[]> {
  try {
    createRouter({ config, ...(await loadPlugins(config.plugins)), logger: silentLogger, openFiles, version });
    return [pass("", "certificates, plugins and policies are usable")];
  } catch (error) {
    const reason = reasonOf(error);
    const file = [...tlsFiles(config)].find(([, path]) => reason.includes(path));
    const setting = file?.[0] ?? (config.plugins.some((path) => reason.includes(path)) ? "plugins" : "policy.name");
    return [fail("", `a router does not start: ${reason}`, { setting, fix: "fix the file that the message names" })];
  }
}

/** Files of certificates, by their settings. */
function tlsFiles({ listen, admin, rollouts, endpointPicker, scale, mesh, engineTls }: CompiledConfig) {
  const of = { listen, admin, rollouts, "endpoint-picker": endpointPicker, scale, mesh };
  const sections = [
    ...Object.entries(of).map(([name, section]) => [`${name}.tls`, section?.tls] as const),
    ["engine-tls", engineTls] as const,
  ];
  return sections.flatMap(([name, tls]) =>
    (["certFile", "keyFile", "caFile"] as const).flatMap((key): readonly (readonly [string, string])[] => {
      const path = tls?.[key];
      return path === undefined ? [] : [[`${name}.${key.replace("File", "-file")}`, path]];
    }),
  );
}

/** Characters that a secret has at least, each counted once; the configuration asks for a length of 16. */
const leastDistinct = 8;

/** The secret of the documentation's examples. */
const exampleSecret = "at-least-16-characters";

/** Whether the mesh has a secret, and one that cannot be guessed. That all have the same, handshakes show. */
export function checkSecret({ mesh }: Pick<CompiledConfig, "mesh">): readonly Finding[] {
  if (mesh.backend !== "peers") return [];
  if (mesh.secret === undefined) {
    const says = mesh.tls ? "none; certificates authenticate routers" : `none; the mesh listens on ${mesh.host} only`;
    return [pass("mesh.secret", says)];
  }
  const secret = mesh.secret.reveal();
  const fix = "use `openssl rand -base64 32`, the same for all routers";
  if (secret === exampleSecret) {
    return [warn("mesh.secret", "that of the documentation, known to everybody", { setting: "mesh.secret", fix })];
  }
  if (new Set(secret).size >= leastDistinct) return [pass("mesh.secret", `set, ${secret.length} characters`)];
  return [fail("mesh.secret", "too weak", { setting: "mesh.secret", fix })];
}

/** Mode bit of a file that every user may read. */
const othersRead = 0o004;

/** Files with secrets that every user of this machine can read. That this process can, `start` shows. */
function checkSecretFiles(config: CompiledConfig, secretFiles: readonly string[]): readonly Finding[] {
  const keys = tlsFiles(config).filter(([setting]) => setting.endsWith("key-file"));
  const files = [...keys, ...secretFiles.map((path) => [undefined, path] as const)];
  return files.flatMap(([setting, path]) => {
    const mode = statSync(path, { throwIfNoEntry: false })?.mode ?? 0;
    if ((mode & othersRead) === 0) return [];
    return [
      warn(path, "every user of this machine can read it", {
        setting,
        fix: `chmod 640 ${path}, or defaultMode: 0440 of a Kubernetes volume`,
      }),
    ];
  });
}

/** Whether the listeners' addresses are this machine's, and their ports free. */
async function checkListeners({ config, running, isHere }: Examined): Promise<readonly Finding[]> {
  if (running && isHere) return [pass("", `in use by the running router at ${running.status.url}`)];
  const { listen, admin, rollouts, mesh, scale, kvEvents, endpointPicker: picker } = config;
  const { processes } = config;
  const events = kvEvents.listen === undefined ? undefined : new URL(kvEvents.listen.replace(/^tcp:/, "http:"));
  const each = (name: string, host: string, port: number, count = 1, key = "port") =>
    port === 0 ? [] : Array.from({ length: count }, (_, at) => ({ setting: `${name}.${key}`, host, port: port + at }));
  // Each process has its own admin, mesh and health port.
  const own = processes === "auto" ? 1 : processes;
  const listeners = [
    ...each("listen", listen.host, listen.port),
    ...each("admin", admin.host, admin.port, own),
    ...(rollouts ? each("rollouts", rollouts.host, rollouts.port) : []),
    ...(mesh.backend === "peers" ? each("mesh", mesh.host, mesh.port, own) : []),
    ...(picker ? each("endpoint-picker", picker.host, picker.port) : []),
    ...(picker ? each("endpoint-picker", picker.host, picker.healthPort, own, "health-port") : []),
    ...(scale.port === undefined ? [] : each("scale", scale.host, scale.port)),
    ...(events
      ? each("kv-events", plainHost(events.hostname).replace("*", "0.0.0.0"), Number(events.port), 1, "listen")
      : []),
  ];
  return Promise.all(listeners.map(checkListener));
}

async function checkListener({
  setting,
  host,
  port,
}: {
  setting: string;
  host: string;
  port: number;
}): Promise<Finding> {
  const target = `${host}:${port}`;
  const error = await tryListen(host, port);
  if (!error) return pass(target, `free, for ${setting}`);
  const failed = (message: string, fix: string, of = setting) =>
    fail(target, `${message}, needed for ${setting}: ${error.message}`, { setting: of, fix });
  if (error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND") {
    return failed(
      "no address of this machine",
      "listen on one of its addresses, or 0.0.0.0",
      setting.replace(/[^.]+$/, "host"),
    );
  }
  if (error.code === "EACCES") return failed("not permitted", "use a port above 1023");
  return failed("in use", `\`lsof -i :${port}\` shows the process; or set another port`);
}

/** @returns why nothing can listen there, or undefined */
function tryListen(host: string, port: number): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", resolve);
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}
