import { createSeededRandom, systemClock, systemScheduler } from "@espalier/core";
import { type CountingMeter, createCountingMeter, createRecordingLogger, waitFor } from "@espalier/testing";
import { onTestFinished } from "vitest";
import type { Backend } from "../../src/exchange/backend.ts";
import type { ExchangeLimits } from "../../src/exchange/exchange-parts.ts";
import { createRedisBackend } from "../../src/redis/redis-backend.ts";
import type { RedisLimits } from "../../src/redis/redis-keys.ts";
import { FakeReplica } from "./fake-replica.ts";
import { type CommandedRedis, startRedis } from "./redis-server.ts";

export interface Node {
  readonly replica: FakeReplica;
  readonly backend: Backend;
  readonly meter: CountingMeter;
  readonly logger: ReturnType<typeof createRecordingLogger>;
  incidents(kind: string): number;
}

export interface NodeOptions {
  readonly epoch?: number;
  readonly url?: string;
  readonly limits?: Partial<RedisLimits>;
  readonly exchangeLimits?: Partial<ExchangeLimits>;
  readonly graceMs?: number;
  /** Sets up the replica before the backend starts. */
  readonly prepare?: (replica: FakeReplica) => void;
}

/** What tests undo after themselves runs last to first. Not a hook of this file, which several files of tests share and load once. */
function atEnd(step: () => unknown): void {
  onTestFinished(async () => void (await step()));
}

export async function redisForTest(...flags: string[]): Promise<CommandedRedis> {
  const server = await startRedis(...flags);
  atEnd(() => server.close());
  return server;
}

/** A router that is not started. */
export function makeNode(server: CommandedRedis, id: string, options: NodeOptions = {}): Node {
  const replica = new FakeReplica(id, options.epoch);
  options.prepare?.(replica);
  const meter = createCountingMeter();
  const logger = createRecordingLogger();
  const backend = createRedisBackend({
    replica,
    url: options.url ?? server.url,
    cluster: "test",
    fleetSeed: "test",
    blockSizeTokens: 16,
    clock: systemClock,
    scheduler: systemScheduler,
    random: createSeededRandom(id.charCodeAt(id.length - 1)),
    logger,
    meter,
    ...(options.graceMs !== undefined && { graceMs: options.graceMs }),
    limits: options.limits ?? {},
    exchangeLimits: options.exchangeLimits ?? {},
  });
  atEnd(() => backend.stop());
  return { replica, backend, meter, logger, incidents: (kind) => meter.value("espalier_redis_incidents_total", kind) };
}

export async function startNode(server: CommandedRedis, id: string, options: NodeOptions = {}): Promise<Node> {
  const node = makeNode(server, id, options);
  await node.backend.start();
  return node;
}

export async function ready(...nodes: readonly Node[]): Promise<void> {
  await waitFor(() => nodes.every(({ backend }) => backend.waitingFor.length === 0), { what: "routers ready" });
}

/** Waits until all have the same journals and the same registry. */
export async function converged(nodes: readonly Node[], deadlineMs = 8_000): Promise<void> {
  const isEqual = (): boolean =>
    nodes.every(({ replica: writer }) =>
      nodes.every(({ replica: reader }) => {
        const [written, read] = [writer.journal(writer.origin), reader.journal(writer.origin)];
        return written.length === read.length && written.every((text, at) => text === read[at]);
      }),
    ) && nodes.every(({ replica }) => replica.registry.size === nodes[0]!.replica.registry.size);
  await waitFor(isEqual, { what: "convergence", deadlineMs });
}

export function stateOf(node: Node, router: string): string | undefined {
  return node.backend.members().find(({ origin }) => origin.router === router)?.state;
}

/** The channel of a living router. */
export async function inboxOf(server: CommandedRedis, router: string): Promise<string> {
  const holders = (await server.command("ZRANGE", "espalier:{test}:3:living", "0", "-1")) as Buffer[];
  const holder = holders.map(String).find((text) => text.endsWith(` ${router}`));
  return `espalier:{test}:3:to:${holder?.split(" ")[0]}`;
}
