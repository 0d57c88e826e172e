import { asTargetIndex } from "@espalier/core";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  CreditLedger,
  creditMemoryMs,
  maxCreditKeys,
  maxCreditMs,
  maxCreditReporters,
  maxReportedCredits,
} from "../../src/copy-credits.ts";

const a = asTargetIndex(0);
const b = asTargetIndex(1);

function ledgerAt(start = 0) {
  const clock = { nowMs: start };
  return { clock, ledger: new CreditLedger(() => clock.nowMs) };
}

test("a worked example: credits add up and fade, and a copy spends them", () => {
  const { clock, ledger } = ledgerAt();
  expect(ledger.paidMs(7)).toBe(0);
  ledger.add(7, 100, a);
  ledger.add(7, 200, a);
  expect(ledger.paidMs(7)).toBeCloseTo(300, 9);
  expect(ledger.paidMs(8)).toBe(0);
  clock.nowMs += creditMemoryMs;
  expect(ledger.paidMs(7)).toBeCloseTo(300 / Math.E, 9);
  ledger.add(7, -100, b);
  expect(ledger.paidMs(7)).toBeCloseTo(300 / Math.E - 100, 9);
  // It cannot cost more than was paid.
  ledger.add(7, -500, b);
  expect(ledger.paidMs(7)).toBe(0);
  ledger.add(7, 5, a);
  expect(ledger.paidMs(7)).toBeCloseTo(5, 9);
});

test("a copy eases those that go to the engine from which it takes load, and nobody else", () => {
  const { ledger } = ledgerAt();
  ledger.add(1, 300, a);
  ledger.add(2, 250, a);
  ledger.add(3, 250, b);
  ledger.add(4, 50, a);
  ledger.add(1, -100, b);
  expect([1, 2, 3, 4].map((key) => ledger.paidMs(key))).toEqual([200, 150, 250, 0]);
});

test("what others tell is added; what they tell next takes its place, and fades from when it was written", () => {
  const { clock, ledger } = ledgerAt(5_000);
  ledger.add(1, 100, a);
  ledger.tell("b", [{ key: 1, paidMs: 50 }], 0);
  ledger.tell("c", [{ key: 1, paidMs: -30 }], 0);
  expect(ledger.paidMs(1)).toBeCloseTo(120, 9);
  ledger.tell("b", [{ key: 2, paidMs: 10 }], creditMemoryMs);
  expect(ledger.paidMs(1)).toBeCloseTo(70, 9);
  expect(ledger.paidMs(2)).toBeCloseTo(10 / Math.E, 9);
  ledger.tell("c", [], 0);
  ledger.tell("b", [], 0);
  expect(ledger.paidMs(1)).toBeCloseTo(100, 9);
  expect(ledger.paidMs(2)).toBe(0);
  clock.nowMs += 1e9;
  ledger.add(9, 4, a);
  expect(ledger.paidMs(9)).toBeCloseTo(4, 9);
  expect(ledger.paidMs(1)).toBe(0);
});

test("a router spends what others have paid, and they hear of it", () => {
  const one = ledgerAt().ledger;
  const other = ledgerAt().ledger;
  one.add(1, 100, a);
  other.tell("one", one.parts(), 0);
  other.add(1, -80, b);
  expect(other.parts()).toEqual([{ key: 1, paidMs: -80 }]);
  one.tell("other", other.parts(), 0);
  expect(one.paidMs(1)).toBeCloseTo(20, 9);
});

/** What the routers do, as one that knows everything at once would keep it. */
class NaiveCredits {
  readonly paid = new Map<number, number>();
  readonly #where = new Map<string, number>();

  pass(ms: number): void {
    for (const [key, paid] of this.paid) this.paid.set(key, paid * Math.exp(-ms / creditMemoryMs));
  }

  add(router: number, key: number, creditMs: number, target: number): void {
    const paid = this.paid.get(key) ?? 0;
    const relieved = this.#where.get(`${router} ${key}`);
    if (creditMs >= 0) {
      this.paid.set(key, paid + creditMs);
      this.#where.set(`${router} ${key}`, target);
      return;
    }
    this.paid.set(key, Math.max(0, paid + creditMs));
    if (relieved === undefined) {
      if (paid > 0) this.#where.set(`${router} ${key}`, target);
      return;
    }
    for (const [name, where] of this.#where) {
      const [who, other] = name.split(" ").map(Number);
      if (who !== router || other === key || where !== relieved) continue;
      this.paid.set(other!, Math.max(0, (this.paid.get(other!) ?? 0) + creditMs));
    }
  }
}

test("routers that hear each other have the same sums as one that knows everything", () => {
  const step = fc.record({
    router: fc.nat(2),
    key: fc.nat(4),
    creditMs: fc.oneof(fc.integer({ min: 1, max: 2_000 }), fc.integer({ min: -2_000, max: -1 })),
    target: fc.nat(2),
    passMs: fc.nat(30_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const clock = { nowMs: 0 };
      const ledgers = [0, 1, 2].map(() => new CreditLedger(() => clock.nowMs));
      const naive = new NaiveCredits();
      for (const { router, key, creditMs, target, passMs } of steps) {
        clock.nowMs += passMs;
        naive.pass(passMs);
        ledgers[router]!.add(key, creditMs, asTargetIndex(target));
        naive.add(router, key, creditMs, target);
        for (const [other, ledger] of ledgers.entries()) {
          if (other !== router) ledger.tell(`router-${router}`, ledgers[router]!.parts(), 0);
        }
      }
      for (const ledger of ledgers) {
        for (let key = 0; key <= 4; key++) {
          // Parts below a millisecond are not told, and a copy that ends on such a part takes as much off others.
          expect(Math.abs(ledger.paidMs(key) - (naive.paid.get(key) ?? 0))).toBeLessThan(2 + steps.length / 10);
        }
      }
    }),
  );
});

test("of one key too many the first is forgotten, and the others go on", () => {
  const { ledger } = ledgerAt();
  for (let key = 0; key <= maxCreditKeys; key++) ledger.add(key, 10, a);
  expect(ledger.paidMs(0)).toBe(0);
  expect(ledger.paidMs(1)).toBe(10);
  ledger.add(maxCreditKeys, 10, a);
  expect(ledger.paidMs(maxCreditKeys)).toBe(20);
});

test("others are told of the largest parts, not of more than the bound, and of no trifles", () => {
  const { ledger } = ledgerAt();
  // Neither in order nor against it.
  for (let count = 0; count <= maxReportedCredits; count++) {
    const key = (5 * count + 3) % (maxReportedCredits + 1);
    ledger.add(key, 10 + key, a);
  }
  ledger.add(1_000, 0.5, a);
  const reported = ledger.parts().map(({ key }) => key);
  expect(reported.toSorted((one, other) => one - other)).toEqual(
    Array.from({ length: maxReportedCredits }, (_, at) => at + 1),
  );
  const hearing = ledgerAt().ledger;
  hearing.tell("b", [...ledger.parts(), { key: 5_000, paidMs: 9 }], 0);
  expect(hearing.paidMs(5_000)).toBe(0);
  expect(hearing.paidMs(maxReportedCredits)).toBeCloseTo(10 + maxReportedCredits, 9);
});

test("of one router too many the first that told is forgotten, and nobody's part is more than the bound", () => {
  const { ledger } = ledgerAt();
  for (let router = 0; router <= maxCreditReporters; router++) ledger.tell(`r${router}`, [{ key: 1, paidMs: 1 }], 0);
  expect(ledger.paidMs(1)).toBeCloseTo(maxCreditReporters, 6);
  ledger.tell("r5", [{ key: 1, paidMs: 11 }], 0);
  expect(ledger.paidMs(1)).toBeCloseTo(maxCreditReporters + 10, 6);
  ledger.tell("r5", [{ key: 2, paidMs: 10 * maxCreditMs }], 0);
  expect(ledger.paidMs(2)).toBeCloseTo(maxCreditMs, 6);
  ledger.add(4, 2 * maxCreditMs, a);
  expect(ledger.paidMs(4)).toBeCloseTo(maxCreditMs, 6);
  for (let count = 0; count < 3; count++) ledger.add(3, maxCreditMs, a);
  expect(ledger.paidMs(3)).toBeCloseTo(maxCreditMs, 6);
});
