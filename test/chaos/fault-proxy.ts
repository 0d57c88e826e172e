import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { systemClock, systemScheduler } from "@espalier/core";

/** What happens to the bytes of one direction of a connection. */
export type Fault =
  /** They stay where they are, ends of connections too, until the fault is over. */
  | { readonly kind: "black-hole" }
  | { readonly kind: "delay"; readonly delayMs: number }
  | { readonly kind: "slow"; readonly bytesPerS: number };

export interface FaultProxyOptions {
  /** Port of the program that connections are passed on to; 0 while there is none, which refuses them. */
  readonly targetPort: () => number;
  /** What happens to bytes at present. `opening` is what the one who dialed sent first. */
  readonly fault: (direction: Direction, opening: string) => Fault | undefined;
}

type Direction = "to-target" | "to-dialer";

/** A TCP proxy on loopback that does to connections what bad networks do. */
export interface FaultProxy {
  readonly port: number;
  /** Breaks connections off with a reset: those whose opening fits, or all. */
  reset(fits?: (opening: string) => boolean): void;
  /** To be called when faults have changed. */
  faultsChanged(): void;
  close(): void;
}

/** Bytes of an opening that are kept: more than the handshake of a websocket and a router's first frame. */
const openingBytes = 2_048;
/** Bytes that wait in one direction before the sender feels it. */
const maxHeldBytes = 65_536;

export async function startFaultProxy({ targetPort, fault }: FaultProxyOptions): Promise<FaultProxy> {
  const pipes = new Set<Pipe>();
  const server = createServer((dialer) => {
    dialer.on("error", () => {});
    const port = targetPort();
    if (port === 0) {
      dialer.resetAndDestroy();
      return;
    }
    const pipe = createPipe(dialer, connect(port, "127.0.0.1"), fault);
    pipes.add(pipe);
    void pipe.closed.then(() => pipes.delete(pipe));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const reset: FaultProxy["reset"] = (fits = () => true) => {
    for (const pipe of pipes) if (fits(pipe.opening())) pipe.reset();
  };
  return {
    port: (server.address() as AddressInfo).port,
    reset,
    faultsChanged() {
      for (const pipe of pipes) pipe.pump();
    },
    close() {
      reset();
      server.close();
    },
  };
}

interface Pipe {
  readonly closed: Promise<unknown>;
  opening(): string;
  pump(): void;
  reset(): void;
}

function createPipe(dialer: Socket, target: Socket, fault: FaultProxyOptions["fault"]): Pipe {
  let opening = "";
  const toTarget = createDirection(dialer, target, () => fault("to-target", opening));
  const toDialer = createDirection(target, dialer, () => fault("to-dialer", opening));
  dialer.on("data", (chunk: Buffer) => {
    if (opening.length < openingBytes) opening += chunk.toString("latin1", 0, openingBytes - opening.length);
    toTarget.add(chunk);
  });
  target.on("data", (chunk: Buffer) => toDialer.add(chunk));
  return {
    closed: Promise.all([closeOf(dialer), closeOf(target)]),
    opening: () => opening,
    pump() {
      toTarget.pump();
      toDialer.pump();
    },
    reset() {
      dialer.resetAndDestroy();
      target.resetAndDestroy();
    },
  };
}

function closeOf(socket: Socket): Promise<void> {
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

/** One direction: bytes wait in a queue, each until its time has come. The end of the sender is the last thing in it. */
function createDirection(from: Socket, to: Socket, fault: () => Fault | undefined) {
  const queue: { readonly chunk: Buffer | "reset" | "end"; readonly atMs: number }[] = [];
  let heldBytes = 0;
  let lineFreeMs = 0;
  const dueMs = (sizeBytes: number): number => {
    const now = fault();
    const nowMs = systemClock.nowMs();
    if (now?.kind === "delay") return nowMs + now.delayMs;
    if (now?.kind !== "slow") return nowMs;
    lineFreeMs = Math.max(lineFreeMs, nowMs) + (sizeBytes * 1_000) / now.bytesPerS;
    return lineFreeMs;
  };
  const send = (chunk: Buffer | "reset" | "end"): void => {
    if (chunk === "reset") to.resetAndDestroy();
    else if (chunk === "end") to.end();
    else if (!to.destroyed) to.write(chunk);
  };
  const pump = (): void => {
    while (queue[0] && fault()?.kind !== "black-hole") {
      const waitMs = queue[0].atMs - systemClock.nowMs();
      if (waitMs > 0) {
        systemScheduler.after(waitMs, pump);
        return;
      }
      const { chunk } = queue.shift()!;
      if (typeof chunk !== "string") heldBytes -= chunk.length;
      send(chunk);
    }
    if (heldBytes < maxHeldBytes) from.resume();
  };
  const add = (chunk: Buffer | "reset" | "end"): void => {
    const sizeBytes = typeof chunk === "string" ? 0 : chunk.length;
    queue.push({ chunk, atMs: dueMs(sizeBytes) });
    heldBytes += sizeBytes;
    if (heldBytes >= maxHeldBytes) from.pause();
    pump();
  };
  from.on("end", () => add("end"));
  from.on("error", () => add("reset"));
  return { add, pump };
}
