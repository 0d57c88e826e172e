import { once } from "node:events";
import { createServer } from "node:net";

/** Below the ports that systems give to clients, any of which may be taken again as soon as it is free. */
const firstPort = 15_000;
const portCount = 15_000;
const attempts = 200;

/** Where this process looks next: processes that test side by side begin at places of their own. */
let next = (process.pid * 7_919) % portCount;

/**
 * A port that nothing listens on at any of these addresses, and that this process has not been given before: no other test
 * and no outgoing connection takes it before whoever asked listens there.
 *
 * @throws Error when two hundred in a row are taken
 */
export async function freePort(hosts: readonly string[] = ["127.0.0.1"]): Promise<number> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const port = firstPort + next;
    next = (next + 1) % portCount;
    const servers = hosts.map((host) => createServer().listen(port, host));
    const outcomes = await Promise.allSettled(servers.map((server) => once(server, "listening")));
    await Promise.all(servers.map((server) => new Promise<void>((resolve) => server.close(() => resolve()))));
    if (outcomes.every(({ status }) => status === "fulfilled")) return port;
  }
  throw new Error("no port is free");
}
