import type { EngineRole, KvTransferProtocol } from "@espalier/core";
import { startEngineSim } from "@espalier/engine-sim";
import { waitFor } from "@espalier/testing";
import { expect } from "vitest";
import { type Answer, call, type Json, post } from "./client.ts";
import type { Rig, RunningRouter } from "./rig.ts";

/** One simulated engine that hands over KV blocks. */
export interface PairSim {
  readonly id: string;
  readonly url: string;
  readonly role: EngineRole;
  /** As the router is told of it. */
  readonly entry: Json;
  fault(fault: Json): Promise<void>;
  clearFaults(): Promise<void>;
  requests(): Promise<readonly SeenRequest[]>;
  /** Requests that run. */
  active(): Promise<readonly unknown[]>;
  transfers(): Promise<TransferState>;
  stop(): Promise<void>;
}

/** A request as the engine's log has it. */
interface SeenRequest {
  readonly path: string;
  readonly outcome: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** The part of `GET /sim/transfers` that tests read. */
interface TransferState {
  readonly exports: readonly unknown[];
  readonly importing: number;
  readonly inbox: { readonly held: number; readonly waiting: number };
  readonly totals: Readonly<Record<string, number>>;
  readonly pinned: unknown;
}

/** What the simulated engines call a protocol. */
const simNames: Partial<Record<KvTransferProtocol, string>> = { sglang: "sglang-bootstrap" };

export interface PairSimOptions {
  readonly protocol: KvTransferProtocol;
  readonly roles: readonly EngineRole[];
  /** How long blocks wait to be fetched. */
  readonly timeoutMs?: number;
  readonly onFailure?: "fail" | "recompute";
}

export async function pairSims(rig: Rig, options: PairSimOptions): Promise<readonly PairSim[]> {
  const { protocol, roles, timeoutMs = 3_000, onFailure = "fail" } = options;
  const sims: PairSim[] = [];
  let storageUrl: string | undefined;
  for (const [index, role] of roles.entries()) {
    const transfer = {
      protocol: (simNames[protocol] ?? protocol) as "nixl",
      ...{ role, timeoutMs, onFailure },
      ...(protocol === "shared-storage" && storageUrl !== undefined ? { storageUrl } : {}),
    };
    const { engines, stop } = await startEngineSim({ speed: 1_000, models: ["tiny"], seed: index, transfer });
    rig.own(stop);
    const { url = "", transferPort = 0 } = engines[0] ?? {};
    storageUrl ??= `http://127.0.0.1:${transferPort}`;
    const json = async (path: string): Promise<Json> => (await call(url + path)).json;
    sims.push({
      ...{ id: new URL(url).host, url, role, stop },
      entry: { url, role, "kv-transfer": { protocol, port: transferPort } },
      async fault(fault) {
        const headers = { "content-type": "application/json" };
        const answer = await call(`${url}/sim/faults`, { method: "POST", body: JSON.stringify(fault), headers });
        if (answer.status !== 200) throw new Error(answer.text);
      },
      async clearFaults() {
        await call(`${url}/sim/faults`, { method: "DELETE" });
      },
      requests: async () => (await json("/sim/state")).requests as readonly SeenRequest[],
      active: async () => (await json("/sim/state")).active as readonly unknown[],
      transfers: async () => (await json("/sim/transfers")) as unknown as TransferState,
    });
  }
  return sims;
}

/** A prompt of about 500 tokens that no other has the beginning of. */
const longPrompt = (name: string): string => `${name} ${"of a long story, ".repeat(120)}`;

export const longChat = (name: string, fields: Json = {}): Json => ({
  model: "tiny",
  messages: [{ role: "user", content: longPrompt(name) }],
  max_tokens: 6,
  ...fields,
});

export const splitConfig = { disaggregation: { "threshold-tokens": 128 } };

export function pairRouter(rig: Rig, sims: readonly PairSim[], config: Json = {}): Promise<RunningRouter> {
  return rig.router({ engines: sims.map(({ entry }) => entry), config: { ...splitConfig, ...config } });
}

/** Asks for a chat and says who computed the prompt, and who answered. */
export async function ask(
  router: RunningRouter,
  body: Json,
): Promise<Answer & { readonly engines: readonly string[] }> {
  const answer = await post(`${router.url}/v1/chat/completions`, body);
  const { "x-espalier-prefill-engine": prefill, "x-espalier-engine": engine } = answer.headers;
  return Object.assign(answer, { engines: [String(prefill ?? "-"), String(engine)] });
}

/** Nothing is in flight, waits, is held for somebody, or is being fetched, in the router or in any engine. */
export async function nothingLeaks(router: RunningRouter, sims: readonly PairSim[]): Promise<void> {
  await router.untilIdle();
  for (const sim of sims) {
    const state = await waitFor(
      async () => {
        const { exports, importing, inbox } = await sim.transfers();
        return exports.length === 0 && importing === 0 && inbox.held === 0 && inbox.waiting === 0;
      },
      { what: `nothing held at ${sim.role} ${sim.id}`, deadlineMs: 15_000 },
    );
    expect(state).toBe(true);
  }
}

/** How often requests went one way for one reason. */
export async function countOf(router: RunningRouter, path: string, reason: string): Promise<number> {
  return (await router.metrics()).sum("espalier_disaggregation_requests_total", { path, reason });
}
