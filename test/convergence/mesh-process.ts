import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const program = join(root, "bench/src/programs/mesh-node.ts");

export interface MeshProcessOptions {
  readonly routerId: string;
  readonly seeds: readonly string[];
  /** Targets whose feeds only this router reads. */
  readonly targets: readonly string[];
}

/** What a router says of the targets that are settled for it, and of the others. */
interface MeshProcessState {
  readonly digests: readonly string[];
  readonly members: number;
}

/** A router with made-up engines as a process of its own. */
export interface MeshProcess {
  readonly address: string;
  /** Begins to change blocks, or ends it. */
  setWorking(isWorking: boolean): Promise<void>;
  state(): Promise<MeshProcessState>;
  kill(signal: "SIGKILL" | "SIGSTOP" | "SIGCONT"): void;
  /** Ends it; resolves when it is gone. */
  stop(): Promise<void>;
}

interface Reply {
  readonly id?: number;
  readonly type: string;
  readonly answer?: unknown;
  readonly address?: string;
  readonly message?: string;
}

/** @throws Error when the program ends before it listens */
export async function startMeshProcess(options: MeshProcessOptions): Promise<MeshProcess> {
  const load = { blocksPerTarget: 256, ratePerS: 800, probesPerS: 5, gaugesPerS: 5, seed: 1 };
  const child = fork(program, [JSON.stringify({ ...load, ...options })], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const gone = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const address = await new Promise<string>((resolve, reject) => {
    child.once("message", (message: Reply) => resolve(message.address ?? ""));
    child.once("exit", () => reject(new Error(`${options.routerId} has ended before it listened`)));
  });
  const ask = asker(child);
  return {
    address,
    setWorking: async (isWorking) => void (await ask(isWorking ? "start" : "stop")),
    async state() {
      const { targets } = (await ask("digest")) as { readonly targets: readonly unknown[] };
      const { members } = (await ask("ready")) as { readonly members: number };
      return { digests: targets.map((target) => JSON.stringify(target)), members };
    },
    kill: (signal) => void child.kill(signal),
    async stop() {
      child.kill("SIGKILL");
      await gone;
    },
  };
}

function asker(child: ChildProcess): (type: string) => Promise<unknown> {
  const waiting = new Map<number, { resolve: (answer: unknown) => void; reject: (error: Error) => void }>();
  let next = 0;
  child.on("message", ({ id = -1, type, answer, message }: Reply) => {
    const asked = waiting.get(id);
    waiting.delete(id);
    if (type === "answer") asked?.resolve(answer);
    else asked?.reject(new Error(message ?? type));
  });
  child.once("exit", () => {
    for (const { reject } of waiting.values()) reject(new Error("the process is gone"));
  });
  return (type) =>
    new Promise((resolve, reject) => {
      waiting.set(next, { resolve, reject });
      child.send({ id: next++, type });
    });
}
