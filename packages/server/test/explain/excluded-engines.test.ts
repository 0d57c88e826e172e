import type { Target } from "@espalier/engines";
import { expect, test } from "vitest";
import { whyExcluded } from "../../src/admin/explained-candidates.ts";

interface EngineChanges {
  readonly state?: string;
  readonly draining?: boolean;
  readonly role?: string;
  readonly breaker?: object;
}

const targetOf = (key: string, changes: EngineChanges = {}): Target => {
  const engine = {
    id: key,
    state: "up",
    stateReason: "probe timed out",
    draining: false,
    role: "both",
    breaker: { allows: true, state: "closed", reason: "new" },
    ...changes,
  };
  return { key, engine } as unknown as Target;
};

const reasons = (changes: EngineChanges, onlyEngine?: string, assignedRole?: "prefill" | "decode") =>
  whyExcluded([targetOf("a", changes)], () => false, {
    onlyEngine,
    admission: new Map(),
    assignedRoleOf: () => assignedRole,
  })[0]?.reasons;

test("candidates are not listed, the others in their order", () => {
  const [a, b, c] = ["a", "b", "c"].map((key) => targetOf(key, { draining: true }));
  const listed = whyExcluded([a!, b!, c!], (target) => target === b, {
    onlyEngine: undefined,
    admission: new Map(),
    assignedRoleOf: () => undefined,
  });
  expect(listed.map(({ key }) => key)).toEqual(["a", "c"]);
});

test.each<[EngineChanges, string]>([
  [{ state: "down" }, "down: probe timed out"],
  [{ draining: true }, "drained by an operator"],
  [{ breaker: { allows: false, state: "open", reason: "5 failures" } }, "circuit breaker open: 5 failures"],
  [{ role: "prefill" }, "role prefill: serves no request alone"],
  [{}, "not a candidate of this request"],
])("%j", (changes, reason) => {
  expect(reasons(changes)).toEqual([reason]);
});

test("every reason there is", () => {
  expect(reasons({ state: "starting", draining: true, role: "prefill" }, "b")).toEqual([
    "starting: probe timed out",
    "drained by an operator",
    "previous_response_id is stored at b",
    "role prefill: serves no request alone",
  ]);
  expect(reasons({}, undefined, "prefill")).toEqual(["assigned to prefill by role balancing"]);
  expect(reasons({}, undefined, "decode")).toEqual(["not a candidate of this request"]);
  expect(reasons({}, "a")).toEqual(["not a candidate of this request"]);
});
