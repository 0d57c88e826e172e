import { asRouterId, createSeededRandom } from "@espalier/core";
import { createCandidateSet, createPolicy } from "@espalier/policies";
import { DecisionLog } from "@espalier/routing";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createDecisionColumns } from "../../src/decisions/decision-columns.ts";
import type { DescribedDecision } from "../../src/decisions/decision-feed.ts";
import { answerWithinMs, createPastDecisions, maxOpenQuestions } from "../../src/decisions/past-decisions.ts";

const facts: DescribedDecision = {
  ...{ atMs: 7, endpoint: "chat", model: "m", policy: "least_work", reason: "least_work", target: "e" },
  ...{ promptTokens: 10, matchedTokens: 0, class: null, queuedMs: 0, attempt: 1, prefillEngine: null, pull: null },
};

/** Routers whose notes reach each other at once. */
async function startRouters(count: number) {
  const time = createVirtualTime();
  const random = createSeededRandom(1);
  const listeners = new Map<number, (note: Note) => void>();
  const posted: Uint8Array[] = [];
  const routers = await Promise.all(
    Array.from({ length: count }, async (_, at) => {
      const notes: NoteChannel = {
        post(key, bytes) {
          posted.push(bytes);
          const note = { origin: { router: asRouterId(`r-${at}`), epoch: 1 }, key, bytes, ageMs: 0 };
          for (const [to, listener] of listeners) if (to !== at) listener(note);
          return true;
        },
        onNote(listener) {
          listeners.set(at, listener);
          return () => listeners.delete(at);
        },
      };
      const log = new DecisionLog(8, createDecisionColumns(8));
      const members = () => Array.from({ length: count - 1 }, () => ({ state: "alive" }));
      const past = createPastDecisions({ log, router: `r-${at}`, notes, members, random, ...time });
      await past.start();
      return { log, past };
    }),
  );
  const hear = (bytes: Uint8Array, ageMs = 0) => {
    const origin = { router: asRouterId("stranger"), epoch: 1 };
    for (const key of ["question", "answer"])
      for (const listener of listeners.values()) listener({ origin, key, bytes, ageMs });
  };
  return { routers, time, random, posted, hear };
}

test("one question more than may be open is refused, until the others have been given up", async () => {
  const { routers, time } = await startRouters(2);
  const { past } = routers[0]!;
  const open = Array.from({ length: maxOpenQuestions }, (_, at) => past.find(`id-${at}`).catch((error) => error.code));
  await expect(past.find("one more")).rejects.toMatchObject({ code: "overloaded" });
  time.advance(answerWithinMs);
  expect(new Set(await Promise.all(open))).toEqual(new Set(["decision_not_found"]));
  routers[1]!.log.name(undefined, "one more", facts);
  expect(await past.find("one more")).toMatchObject({ router: "r-1", decisions: [{ target: "e" }] });
});

test("nobody is asked by a router without others, or for an id that is too long", async () => {
  const alone = await startRouters(1);
  await expect(alone.routers[0]!.past.find("id")).rejects.toMatchObject({ code: "decision_not_found" });
  const pair = await startRouters(2);
  await expect(pair.routers[0]!.past.find("x".repeat(129))).rejects.toMatchObject({ code: "decision_not_found" });
  expect([...alone.posted, ...pair.posted]).toEqual([]);
});

test("what no router can read, and what is late, is passed over", async () => {
  const { routers, time, posted, hear } = await startRouters(2);
  routers[1]!.log.name(undefined, "id", facts);
  await routers[0]!.past.find("id");
  const known = [...posted];
  posted.length = 0;
  for (const bytes of [
    new Uint8Array(),
    Uint8Array.of(2, 1, 1),
    Uint8Array.of(1, 255),
    Uint8Array.of(1, 1, 3, 9, 9, 9),
  ]) {
    hear(bytes);
  }
  for (const bytes of known) hear(bytes, answerWithinMs + 1);
  expect(posted).toEqual([]);
  const lost = routers[0]!.past.find("lost").catch((error) => error.code);
  for (const bytes of known) hear(bytes);
  time.advance(answerWithinMs);
  expect(await lost).toBe("decision_not_found");
});

test("a router that stops answers those who ask it, and no other router any more", async () => {
  const { routers } = await startRouters(2);
  const [one, other] = routers as [(typeof routers)[0], (typeof routers)[0]];
  const asked = one.past.find("id").catch((error) => error.code);
  await one.past.stop();
  expect(await asked).toBe("decision_not_found");
  one.log.name(undefined, "kept", facts);
  const lost = other.past.find("kept").catch((error) => error.code);
  await other.past.stop();
  expect(await lost).toBe("decision_not_found");
});

test.each([
  [{ reason: "rotation" }, "e was the only candidate (rotation)."],
  [
    { attempt: 2, prefillEngine: "p" },
    "At attempt 2, p was chosen to compute the prompt, and e to answer (least_work).",
  ],
])("a decision without candidates to compare: %j", async (changes, sentence) => {
  const { routers } = await startRouters(1);
  routers[0]!.log.name(undefined, "id", { ...facts, ...changes });
  expect((await routers[0]!.past.find("id")).decisions.map(({ summary }) => summary)).toEqual([sentence]);
});

test("a choice is compared with the candidate that held most, wherever its cost puts it, or with the next one", async () => {
  const { routers, random } = await startRouters(1);
  const { log, past } = routers[0]!;
  const leastWork = createPolicy("least_work");
  const summaryOf = async (pending: readonly number[], matched: readonly number[]): Promise<string> => {
    const candidates = createCandidateSet();
    for (const [at, tokens] of pending.entries()) {
      candidates.add(`e-${at}`, at);
      candidates.pendingPrefillTokens[at] = tokens;
      candidates.matchedTokens[at] = matched[at]!;
    }
    const request = { promptTokens: 900, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined };
    const id = matched.join();
    log.name(log.add(candidates, leastWork.choose(request, candidates, random)), id, {
      ...facts,
      ...{ target: "e-0", promptTokens: 900, matchedTokens: matched[0]! },
    });
    return (await past.find(id)).decisions[0]!.summary;
  };
  const pending = [0, 1_000, 9_000];
  expect(await summaryOf(pending, [0, 0, 800])).toMatch(
    /^e-0 .* e-2 and 1 more: it held none of 900 tokens, the other 800/,
  );
  expect(await summaryOf(pending, [800, 0, 640])).toMatch(
    /^e-0 .* e-1 and 1 more: it held 800 of 900 tokens, the other none/,
  );
});
