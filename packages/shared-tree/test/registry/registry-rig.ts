import { asRouterId, type Random } from "@espalier/core";
import { createHybridClock } from "@espalier/mesh";
import { type CountingMeter, createCountingMeter, createVirtualTime, type VirtualTime } from "@espalier/testing";
import { applyUpdate, type Doc, encodeStateAsUpdate, encodeStateVector } from "yjs";
import { Registry } from "../../src/registry/registry.ts";

const remote = Symbol("remote");

interface Sent {
  readonly name: string;
  readonly bytes: Uint8Array;
  readonly from: RegistryRouter;
}

export interface RegistryRouter {
  readonly registry: Registry;
  readonly meter: CountingMeter;
  readonly changes: string[];
  /** What it has written and nobody has fetched. */
  readonly outbox: Sent[];
  receive(sent: Pick<Sent, "name" | "bytes">): void;
  /** Everything another one has, as at the beginning of a link. */
  sync(other: RegistryRouter): void;
}

export interface RegistryRouterOptions {
  readonly time?: VirtualTime;
  readonly epoch?: number;
  /** How far its wall clock is ahead. */
  readonly aheadMs?: number;
}

export function createRegistryRouter(name: string, options: RegistryRouterOptions = {}): RegistryRouter {
  const { time = createVirtualTime(), epoch = 1, aheadMs = 0 } = options;
  const clock = { nowMs: time.clock.nowMs, wallMs: () => time.clock.wallMs() + aheadMs };
  const meter = createCountingMeter();
  const registry = new Registry({
    meter,
    self: () => ({ router: asRouterId(name), epoch }),
    clock,
    hlc: createHybridClock(clock),
  });
  const changes: string[] = [];
  registry.onChange(({ kind, engine }) => changes.push(`${kind} ${engine}`));
  const outbox: Sent[] = [];
  const router: RegistryRouter = {
    ...{ registry, meter, changes, outbox },
    receive(sent) {
      const doc = registry.open(sent.name);
      if (doc) applyUpdate(doc, sent.bytes, remote);
    },
    sync(other) {
      for (const { name: theirs, doc } of other.registry.documents()) {
        const own = registry.open(theirs);
        if (own) applyUpdate(own, encodeStateAsUpdate(doc, encodeStateVector(own)), remote);
      }
    },
  };
  const attach = (documentName: string, doc: Doc): void => {
    doc.on("update", (bytes: Uint8Array, origin: unknown) => {
      if (origin !== remote) outbox.push({ name: documentName, bytes, from: router });
    });
  };
  attach(registry.name, registry.doc);
  registry.onDocument((document) => {
    if (document.isOpen) attach(document.name, document.doc);
  });
  return router;
}

/** Delivers what was written, in any order between writers, until nothing is left. */
export function settle(routers: readonly RegistryRouter[], random?: Random): void {
  for (let round = 0; round < 1_000; round++) {
    const writers = routers.filter(({ outbox }) => outbox.length > 0);
    const writer = random ? writers[random.integer(writers.length)] : writers[0];
    if (!writer) return;
    const sent = writer.outbox.shift()!;
    for (const router of routers) if (router !== writer) router.receive(sent);
  }
  throw new Error("the routers do not settle");
}

/** Two-way sync of everybody with everybody until nothing changes. */
export function heal(routers: readonly RegistryRouter[]): void {
  for (let round = 0; round < 4; round++) {
    for (const one of routers) for (const other of routers) if (one !== other) one.sync(other);
    for (const { outbox } of routers) outbox.length = 0;
  }
}

/** What a registry says, as one text. */
export function stateOf({ registry }: RegistryRouter, engines: readonly string[]): string {
  return JSON.stringify([registry.engines(), engines.map((engine) => registry.drainingOf(engine) ?? null)]);
}
