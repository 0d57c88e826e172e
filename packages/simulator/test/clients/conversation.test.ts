import { describe, expect, test } from "vitest";
import {
  type Conversation,
  createConversation,
  maxOwnTexts,
  maxSessions,
  maxTurns,
} from "../../src/clients/conversation.ts";
import { hashesOf, sharedBlocks } from "./recorded-run.ts";

const ask = (conversation: Conversation, outputTokens = 32) =>
  conversation.ask({ index: 0, outputTokens, className: undefined });

describe("a conversation", () => {
  test("asks with its prompt so far, and the answer becomes part of it", () => {
    const conversation = createConversation({ seed: 1, session: 7 });
    conversation.share(0, 100);
    conversation.own(50);
    const first = conversation.ask({ index: 3, outputTokens: 30, className: "batch" });
    expect(first).toMatchObject({ index: 3, session: 7, turn: 0, promptTokens: 150, outputTokens: 30 });
    expect(first.className).toBe("batch");
    expect(first.chain.length).toBe(2 * Math.floor(180 / 16));
    conversation.own(20);
    const second = conversation.ask({ index: 9, outputTokens: 1, className: undefined });
    expect(second).toMatchObject({ index: 9, session: 7, turn: 1, promptTokens: 200, outputTokens: 1 });
    expect("className" in second).toBe(false);
    expect(second.chain.length).toBe(2 * Math.floor(201 / 16));
    expect(sharedBlocks(first.chain, second.chain)).toBe(first.chain.length / 2);
    expect([conversation.turn, conversation.tokens]).toEqual([2, 201]);
  });

  test("shares with another one what both say is shared, and nothing else", () => {
    const chains = [1, 2].map((session) => {
      const conversation = createConversation({ seed: 1, session });
      conversation.share(4, 160);
      conversation.own(160);
      return ask(conversation).chain;
    });
    expect(sharedBlocks(chains[0]!, chains[1]!)).toBe(10);
    const others = new Set(hashesOf(chains[1]!).slice(10));
    expect(hashesOf(chains[0]!).some((hash) => others.has(hash))).toBe(false);
  });

  test("never repeats a text of its own, within a turn or across turns", () => {
    const conversation = createConversation({ seed: 1, session: 0 });
    const chains: Uint32Array[] = [];
    for (let turn = 0; turn < 50; turn++) {
      conversation.cut(0);
      conversation.own(16);
      chains.push(ask(conversation, 16).chain);
    }
    expect(new Set(chains.flatMap(hashesOf)).size).toBe(100);
  });

  test("is the same whenever it is made of the same", () => {
    const make = (): Uint32Array => {
      const conversation = createConversation({ seed: 5, session: 3, turn: 8 });
      conversation.own(400);
      return ask(conversation).chain;
    };
    expect(make()).toEqual(make());
  });

  test("that begins at a later turn has other texts of its own", () => {
    const chains = [0, 1].map((turn) => {
      const conversation = createConversation({ seed: 5, session: 3, turn });
      conversation.share(1, 64);
      const request = ask(conversation, 64);
      expect(request.turn).toBe(turn);
      return request.chain;
    });
    expect(sharedBlocks(chains[0]!, chains[1]!)).toBe(4);
  });

  test("is cut to full blocks", () => {
    const conversation = createConversation({ seed: 1, session: 1 });
    conversation.own(100);
    conversation.cut(70);
    expect(conversation.tokens).toBe(64);
    conversation.cut(1_000);
    expect(conversation.tokens).toBe(64);
  });
});

describe("bounds of a conversation", () => {
  test("own texts of a turn, the answer among them", () => {
    const conversation = createConversation({ seed: 1, session: 1 });
    for (let text = 0; text < maxOwnTexts - 1; text++) conversation.own(1);
    ask(conversation);
    for (let text = 0; text < maxOwnTexts; text++) conversation.own(1);
    expect(() => ask(conversation)).toThrow(RangeError);
  });

  test("sessions and turns", () => {
    expect(() => createConversation({ seed: 1, session: maxSessions })).toThrow(RangeError);
    expect(() => createConversation({ seed: 1, session: 1, turn: maxTurns }).own(1)).toThrow(RangeError);
    const last = createConversation({ seed: 1, session: maxSessions - 1, turn: maxTurns - 1 });
    last.own(16);
    ask(last, 16);
    expect(() => last.own(1)).toThrow(RangeError);
  });

  test("names of shared texts", () => {
    expect(() => createConversation({ seed: 1, session: 1 }).share(-1, 16)).toThrow(RangeError);
  });
});
