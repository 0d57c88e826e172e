import { readTable, wordsOf } from "../tables.ts";

/** Where a plugin takes part in llm-d's endpoint picker. Only the first four stand in scheduling profiles. */
const kinds = [
  ...(["scorer", "filter", "picker", "profile handler", "decider", "producer"] as const),
  ...(["data layer", "parser", "flow control", "saturation detector", "admission"] as const),
];

/** What becomes of a parameter: `migration/llm-d.yaml` says what each key means. */
export type ParameterRule =
  | "read"
  | { readonly same: string }
  | { readonly sets: string }
  | { readonly why: string; readonly instead: string; readonly unless?: unknown }
  | { readonly parameters: ParameterRules };

export type ParameterRules = Readonly<Record<string, ParameterRule>>;

interface WrittenRule {
  readonly ours?: string;
  readonly why?: string;
  readonly instead?: string;
  readonly policy?: string;
  readonly weight?: string;
  readonly factor?: number;
  readonly parameters?: ParameterRules;
}

/** What one of their plugins is here. */
export interface PluginRule extends WrittenRule {
  readonly kind: (typeof kinds)[number];
  readonly parameters: ParameterRules;
}

type WrittenRow = WrittenRule & { readonly reads?: string } & Readonly<Partial<Record<PluginRule["kind"], string>>>;

const { plugins: rows } = readTable("llm-d") as { readonly plugins: readonly WrittenRow[] };

/** Every plugin that llm-d's router registers, by its type, in the order of the table. */
export const llmdPlugins: Readonly<Record<string, PluginRule>> = Object.fromEntries(
  rows.flatMap((row) => {
    const rule = ruleOf(row);
    return kinds.flatMap((kind) => wordsOf(row[kind]).map((type) => [type, { ...rule, kind }] as const));
  }),
);

function ruleOf({ reads, weight, ours, why, instead, ...row }: WrittenRow): Omit<PluginRule, "kind"> {
  const { policy, factor, parameters = {} } = row;
  const isAbsent = ours === undefined && weight === undefined;
  const advice = instead ?? (isAbsent ? "nothing to set" : undefined);
  return {
    ...(isAbsent ? {} : { ours: ours ?? `\`policy.${weight}\`` }),
    ...(why === undefined ? {} : { why }),
    ...(advice === undefined ? {} : { instead: advice }),
    ...(policy === undefined ? {} : { policy }),
    ...(weight === undefined ? {} : { weight, factor: factor ?? 1 }),
    parameters: { ...Object.fromEntries(wordsOf(reads).map((name) => [name, "read" as const])), ...parameters },
  };
}
