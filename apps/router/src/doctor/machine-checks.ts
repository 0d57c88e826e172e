import { createServer } from "node:net";
import type { CompiledConfig } from "@espalier/server";
import { type Check, cross, reasonOf, tick } from "./check.ts";

/** Below this, a router serves a few hundred clients at most. */
const wantedOpenFiles = 4_096;
const oldestNode = 24;

/** Node's version and the limit of open files. */
export function checkMachine(node: string, openFiles: number): readonly Check[] {
  const files = openFiles === Number.POSITIVE_INFINITY ? "unlimited or unknown" : `${openFiles} at once`;
  return [
    Number.parseInt(node, 10) < oldestNode
      ? cross("node", "", `${node} is too old`, `install Node ${oldestNode} or newer`)
      : tick("node", "", node),
    openFiles < wantedOpenFiles
      ? cross("open files", "", files, "raise the limit: `ulimit -n 65536`, or LimitNOFILE=65536 in systemd")
      : tick("open files", "", files),
  ];
}

/** Whether the ports of the listeners are free here. @param running the URL of the router that has them already */
export async function checkPorts(config: CompiledConfig, running: string | undefined): Promise<readonly Check[]> {
  if (running !== undefined) return [tick("ports", "", `in use by the running router at ${running}`)];
  const { listen, admin, rollouts, mesh, endpointPicker: picker } = config;
  const listeners = [
    { name: "listen", ...listen },
    { name: "admin", ...admin },
    ...(rollouts ? [{ name: "rollouts", ...rollouts }] : []),
    ...(mesh.backend === "peers" ? [{ name: "mesh", host: mesh.host, port: mesh.port }] : []),
    ...(picker ? [{ name: "ext-proc", host: picker.host, port: picker.port }] : []),
    ...(picker ? [{ name: "ext-proc-health", host: picker.host, port: picker.healthPort }] : []),
  ].filter(({ port }) => port !== 0);
  return Promise.all(
    listeners.map(async ({ name, host, port }) => {
      const failure = await tryListen(host, port);
      if (failure === undefined) return tick("port", `${host}:${port}`, `free, for ${name}`);
      const fix = `\`lsof -i :${port}\` shows the process; --${name}-port sets another port`;
      return cross("port", `${host}:${port}`, `in use, needed for ${name}: ${failure}`, fix);
    }),
  );
}

/** @returns why nothing can listen there, or undefined */
function tryListen(host: string, port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", (error) => resolve(reasonOf(error)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
}

/** Characters that a secret has at least, each counted once; the configuration asks for a length of 16. */
const leastDistinct = 8;

/** Whether the mesh has a secret, and one that cannot be guessed. That all have the same, handshakes show. */
export function checkSecret({ mesh }: Pick<CompiledConfig, "mesh">): readonly Check[] {
  if (mesh.backend !== "peers") return [];
  if (mesh.secret === undefined) {
    const says = mesh.tls ? "none; certificates authenticate routers" : `none; the mesh listens on ${mesh.host} only`;
    return [tick("secret", "mesh.secret", says)];
  }
  const secret = mesh.secret.reveal();
  if (new Set(secret).size >= leastDistinct) {
    return [tick("secret", "mesh.secret", `set, ${secret.length} characters`)];
  }
  return [cross("secret", "mesh.secret", "too weak", "use `openssl rand -base64 32`, the same for all routers")];
}
