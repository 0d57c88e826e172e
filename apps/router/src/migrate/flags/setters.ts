import { didYouMean } from "@espalier/core";
import { policyCatalogue, policyNames } from "@espalier/policies";
import type { Translation } from "../translation.ts";
import type { Outcome } from "./flag-table.ts";

/** Sets what the values of a flag come to, and says where the table's words do not fit them. */
export type Setter = (values: readonly string[], translation: Translation) => Outcome | undefined;

/** Sets the same whatever the value. */
export const setTo =
  (path: string, value: unknown): Setter =>
  (_, translation) => {
    translation.set(path, value);
    return undefined;
  };

/** Sets a text. @param unit is appended to it, as to a number of seconds */
export const setText =
  (path: string, unit: "" | "s" = ""): Setter =>
  ([value = ""], translation) => {
    translation.set(path, `${value}${unit}`);
    return undefined;
  };

/** Sets every value of a list. */
export const setList =
  (path: string): Setter =>
  (values, translation) => {
    translation.set(path, values);
    return undefined;
  };

/** Sets a number of ours; the nearest one within the bounds is taken. */
export const setNumber =
  (path: string, { min, max }: { readonly min: number; readonly max: number }): Setter =>
  ([written = ""], translation) => {
    const value = Number(written);
    if (!Number.isFinite(value)) return { outcome: "missing", why: "it is not a number", instead: `\`${path}\`` };
    const nearest = Math.min(max, Math.max(min, Math.round(value)));
    translation.set(path, nearest);
    const ours = `\`${path}: ${nearest}\``;
    return nearest === value ? { ours } : { outcome: "differs", ours, why: `${written} is not a value that it takes` };
  };

/** What policies are here that do not have their name here; without `name`, our default is the nearest. */
export type ForeignPolicies = Readonly<Record<string, Outcome & { readonly name?: string }>>;

function counterpart(written: string, policies: ForeignPolicies): Outcome & { readonly name?: string } {
  if (Object.hasOwn(policies, written)) return policies[written] ?? {};
  if (Object.hasOwn(policyCatalogue, written)) return { name: written };
  return { why: `it is the name of no policy${didYouMean(written, [...Object.keys(policies), ...policyNames])}` };
}

/** The policy that a name of theirs stands for; undefined for our default. */
export const policyNamed = (written: string, policies: ForeignPolicies): string | undefined =>
  counterpart(written, policies).name;

/** Says what became of a policy, which is set before everything else. */
export const sayPolicy =
  (policies: ForeignPolicies): Setter =>
  ([written = ""]) => {
    const { name, ...said } = counterpart(written, policies);
    const ours = `\`policy: ${name ?? "predicted_latency"}\``;
    return { ours, outcome: said.why === undefined ? "same" : "differs", ...said };
  };

/** Sets where traces go: a collector takes gRPC at 4317 and HTTP at 4318. */
export function setCollector(address: string, scheme: "http" | "https", translation: Translation): void {
  const place = address.replace(/^[a-z]+:\/\//, "").replace(/:4317$/, ":4318");
  translation.set("tracing.endpoint", `${scheme}://${place}`);
}
