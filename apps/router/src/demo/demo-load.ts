import { createSeededRandom, systemClock } from "@espalier/common";
import { createLoadClient } from "@espalier/load-driver";
import {
  type ChatMessage,
  type ChatSession,
  chatSessions,
  poissonArrivals,
  type RequestResult,
} from "@espalier/workload";
import { wait } from "../wait.ts";

export interface DemoLoadOptions {
  /** Of the routers that there are now, asked for each request. */
  readonly urls: () => readonly string[];
  readonly model: string;
  readonly requestsPerSecond: number;
  readonly signal: AbortSignal;
  readonly onResult: (result: RequestResult) => void;
}

/** A conversation on its way; idle between an answer and the next message. */
interface Conversation {
  readonly session: ChatSession;
  readonly messages: ChatMessage[];
  turn: number;
}

const seed = 1;
const usersPerGeneration = 1_000;
/** Share of the arrivals that go on with a conversation, when one is idle. */
const followUpShare = 0.75;
const maxIdle = 200;
/** Requests under way; beyond it arrivals wait, so that a router that hangs does not fill the memory. */
const maxUnderWay = 1_000;
/** Between two arrivals that are late: answers are read meanwhile, or the load would be all that a busy machine does. */
const leastGapMs = 1;

/** People who chat: conversations of several turns with three assistants, at a steady rate, until the signal. */
export async function runDemoLoad(options: DemoLoadOptions): Promise<void> {
  const { urls, model, requestsPerSecond, signal, onResult } = options;
  const random = createSeededRandom(seed);
  const client = createLoadClient(systemClock);
  const idle: Conversation[] = [];
  const fresh = newConversations();
  const running = new Set<Promise<void>>();
  let sent = 0;

  const take = (): Conversation => {
    const goOn = idle.length > 0 && (idle.length >= maxIdle || random.float() < followUpShare);
    return goOn ? (idle.splice(random.integer(idle.length), 1)[0] as Conversation) : fresh.next().value;
  };
  const send = async (conversation: Conversation): Promise<void> => {
    const { session, messages, turn } = conversation;
    const open = urls();
    const url = open[sent % open.length];
    if (url === undefined) return;
    const index = sent++;
    const { outputTokens = 0, userTokens = 0 } = session.turns[turn] ?? {};
    messages.push({ role: "user", content: session.userText(turn) });
    const answer = await client.send(
      {
        url,
        path: "/v1/chat/completions",
        body: JSON.stringify({
          model,
          stream: true,
          stream_options: { include_usage: true },
          max_tokens: outputTokens,
          messages,
        }),
        headers: { "x-session-id": session.id },
        keepText: true,
      },
      signal,
    );
    if (signal.aborted) return;
    takeAnswer(conversation, answer);
    if (conversation.turn < session.turns.length) idle.push(conversation);
    onResult({
      index,
      session: session.id,
      turn,
      startMs: answer.startMs,
      firstTokenMs: answer.firstTokenMs,
      endMs: answer.endMs,
      inputTokens: answer.promptTokens ?? userTokens,
      outputTokens: answer.completionTokens ?? 0,
      cachedTokens: answer.cachedTokens ?? Number.NaN,
      engine: answer.engine,
      error: answer.error,
      itlSumMs: answer.endMs - answer.firstTokenMs,
      itlCount: Math.max(0, (answer.completionTokens ?? 0) - 1),
    });
  };

  const startMs = systemClock.nowMs();
  for (const dueMs of poissonArrivals(requestsPerSecond, random)) {
    await wait(Math.max(leastGapMs, startMs + dueMs - systemClock.nowMs()), signal);
    if (running.size >= maxUnderWay) await Promise.race(running);
    if (signal.aborted) break;
    const request: Promise<void> = send(take()).finally(() => running.delete(request));
    running.add(request);
  }
  await Promise.all(running);
  client.close();
}

/** Whoever got no answer, or half of one, says the same again. */
function takeAnswer(
  conversation: Conversation,
  { text, error }: { readonly text: string; readonly error?: unknown },
): void {
  if (error === undefined) {
    conversation.messages.push({ role: "assistant", content: text });
    conversation.turn++;
  } else conversation.messages.pop();
}

/** Assistants with instructions of their own, which all that talk to one have in common: their lengths in tokens. */
const instructionTokens = [400, 900, 1_500] as const;

/** Conversations with each assistant in turn. */
function* newConversations(): Generator<Conversation, never> {
  const kinds = instructionTokens.map((tokens, at) => conversationsWith(tokens, seed + at));
  for (;;) for (const kind of kinds) yield kind.next().value;
}

function* conversationsWith(sharedPrefixTokens: number, firstSeed: number): Generator<Conversation, never> {
  for (let generation = firstSeed; ; generation += instructionTokens.length) {
    const sessions = chatSessions({
      users: usersPerGeneration,
      turns: 6,
      firstMessageTokens: 300,
      newTokensPerTurn: 100,
      outputTokens: 60,
      thinkTimeMeanMs: 0,
      sharedPrefixTokens,
      seed: generation,
    });
    for (const session of sessions) {
      const system: ChatMessage[] =
        session.systemText === undefined ? [] : [{ role: "system", content: session.systemText }];
      yield { session, messages: system, turn: 0 };
    }
  }
}
