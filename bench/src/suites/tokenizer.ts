import { systemClock } from "@espalier/core";
import { optional, positive, quick, runs, text } from "../support/params.ts";
import { repeatRuns } from "../support/repeat-runs.ts";
import { defineSuite, joinRuns, shown } from "../support/suite.ts";
import {
  blockSize,
  conversationTokens,
  countMismatches,
  loadTokenizers,
  messageLength,
  newTokens,
  runTokenizerOnce,
} from "./tokenizer-run.ts";

/** Tokens of prompts, in tokens per second. */
export const tokenizerSuite = defineSuite({
  name: "tokenizer",
  summary: "tokens of new text and of conversations, beside the native tokenizers",
  about: `
Tokens of prompts with the shipped model (4,096 tokens, byte-level BPE), beside the reference implementation (Hugging
Face tokenizers, native): new text, a conversation of ${conversationTokens} tokens whose last ${newTokens} are new (counted in all its
tokens, chain included), the same conversation again, one of 48 KB again; turns of a conversation of 48 KB and of an agent's of
200 KB from the body to the chain, each with some 256 new tokens; and how many hard texts get other tokens.`,
  params: {
    model: optional(text("DIR", "a folder with another model's tokenizer.json", "")),
    duration: positive({
      help: "seconds of each measurement, of which there are seven in a run",
      ...{ standard: 0.4, quick: 0.1, most: 60 },
    }),
    runs: runs(5),
    quick: quick(),
  },
  async measure({ model, duration, runs, quick }, note) {
    const tokenizers = await loadTokenizers(model);
    const { texts, mismatches } = await countMismatches(tokenizers, quick ? 50 : 1_000);
    note(`${mismatches} mismatches in ${texts} texts`);
    const durationMs = duration * 1_000;
    const done = await repeatRuns({ runs, note }, async (seed, noteRun) => {
      const { espalier, reference } = await runTokenizerOnce({ tokenizers, clock: systemClock, durationMs, seed });
      noteRun(`${shown("", espalier.tokens_per_s ?? 0)} tokens/s`);
      return { espalier, native: reference };
    });
    const { metrics, ...others } = joinRuns(done);
    return {
      params: {
        ...{ runs, duration_ms: durationMs, texts, block_size: blockSize, conversation_tokens: conversationTokens },
        ...{ new_tokens: newTokens, message_characters: messageLength },
      },
      metrics: { ...metrics, mismatches },
      ...others,
    };
  },
});
