import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { benchModel } from "../support/bench-model.ts";
import type { CorePlan } from "../support/cpu-pinning.ts";
import { startForeignProgram } from "../support/foreign-process.ts";
import { freePorts } from "../support/free-ports.ts";
import type { WaitPorts } from "../support/until.ts";
import type { InstalledPeer } from "./install-peer.ts";
import type { PeerCommand, PeerStart } from "./products.ts";

/** A router that answers. */
export interface RunningPeer {
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

export interface StartPeerOptions {
  readonly engineUrls: readonly string[];
  readonly policy: string;
  /** The core that it may use; all cores when undefined. */
  readonly plan: CorePlan | undefined;
  /** Replaces the product's own command. */
  readonly command?: (start: PeerStart) => PeerCommand;
}

const startTimeoutMs = 30_000;
const askTimeoutMs = 2_000;
/** Consecutive answers required, so that it has registered all its engines. */
const answersInRow = 8;

/**
 * Starts a product and waits until it forwards requests to engines.
 *
 * @throws Error with its last output when it ends or does not answer within 30 s
 */
export async function startPeer(
  { product, program, libraryPath }: InstalledPeer,
  { engineUrls, policy, plan, command = product.command }: StartPeerOptions,
  ports: WaitPorts,
): Promise<RunningPeer> {
  const [port = 0, metricsPort = 0] = await freePorts(2);
  const folder = mkdtempSync(join(tmpdir(), `espalier-bench-${product.name}-`));
  const { arguments: args, files = {} } = command({ port, metricsPort, engineUrls, policy, folder });
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const libraries = libraryPath === undefined ? [] : [`LD_LIBRARY_PATH=${libraryPath}`];
  const url = `http://127.0.0.1:${port}`;
  const process = await startForeignProgram(
    {
      ...{ name: product.name, command: [program, ...args], variables: ["NO_PROXY=127.0.0.1", ...libraries] },
      ...{ folder, plan, startTimeoutMs },
    },
    () => askSeveral(url, ports),
    ports,
  );
  return { url, ...process };
}

/** @returns the failure, or undefined */
async function askSeveral(url: string, ports: WaitPorts): Promise<string | undefined> {
  for (let asked = 0; asked < answersInRow; asked++) {
    const wrong = await ask(url, ports);
    if (wrong !== undefined) return `${url} ${wrong}`;
  }
  return undefined;
}

async function ask(url: string, { scheduler }: WaitPorts): Promise<string | undefined> {
  const late = new AbortController();
  const cancel = scheduler.after(askTimeoutMs, () => late.abort(new Error(`no answer within ${askTimeoutMs} ms`)));
  const body = JSON.stringify({ model: benchModel, messages: [{ role: "user", content: "Hello" }], max_tokens: 1 });
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
      signal: late.signal,
    });
    const text = await response.text();
    return response.ok ? undefined : `answers ${response.status}: ${text.slice(0, 200)}`;
  } catch (thrown) {
    return `does not answer: ${(thrown as Error).message}`;
  } finally {
    cancel();
  }
}
