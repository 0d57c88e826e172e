import { createSeededRandom, systemClock } from "@espalier/core";
import {
  type ChatMessage,
  type ChatSession,
  chatSessions,
  createLoadClient,
  poissonArrivals,
  type RequestResult,
} from "@espalier/simulator";
import { resultOf } from "../replay/replay-results.ts";
import { wait } from "../signals.ts";

export interface DemoLoadOptions {
  /** The currently running routers; called for each request. */
  readonly urls: () => readonly string[];
  readonly model: string;
  readonly requestsPerSecond: number;
  readonly signal: AbortSignal;
  readonly onResult: (result: RequestResult) => void;
}

/** An open conversation; idle between an answer and the next message. */
interface Conversation {
  readonly session: ChatSession;
  readonly messages: ChatMessage[];
  turn: number;
}

const seed = 1;
const usersPerGeneration = 1_000;
/** Share of the arrivals that continue a conversation, when one is idle. */
const followUpShare = 0.75;
/** Idle conversations; with as many, every arrival continues one. */
const maxIdle = 200;
/** Maximum open requests. Further arrivals wait, so that a router that hangs does not fill the memory. */
const maxUnderWay = 1_000;
/**
 * Pause between two late arrivals, so that answers are read. Otherwise the load would take all the time of a busy
 * machine.
 */
const leastGapMs = 1;

/** Simulates chats: conversations of several turns with three assistants, at a steady rate, until the signal. */
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
    onResult(resultOf(answer, { index, session: session.id, turn, inputTokens: userTokens }));
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

/** A user repeats a message that got no answer or half of one. */
function takeAnswer(
  conversation: Conversation,
  { text, error }: { readonly text: string; readonly error?: unknown },
): void {
  if (error === undefined) {
    conversation.messages.push({ role: "assistant", content: text });
    conversation.turn++;
  } else conversation.messages.pop();
}

/** Lengths in tokens of the assistants' instructions, which all conversations with one assistant share. */
const instructionTokens = [400, 900, 1_500] as const;

/** Conversations with each assistant, in rotation. */
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
