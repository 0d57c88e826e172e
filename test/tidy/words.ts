import { parseSync, type TemplateLiteral, Visitor } from "oxc-parser";
import { parse } from "yaml";
import { type Tree, violation } from "./tree.ts";

/** Words of our own for which the field has a term (docs/GLOSSARY.md). A reader of the field stumbles over them. */
interface OldWord {
  /** Each as the parts of a name: `lanes` is in `lanesOf` and in `lanes-of`, `gone-targets` in `allGoneTargets`. */
  readonly words: readonly string[];
  readonly use: string;
  /** It is plain English as well, so that the title of a test may say it. */
  readonly isEnglish?: true;
  readonly allowed?: readonly Allowance[];
}

interface Allowance {
  /** The names that are allowed, whole; all when absent. */
  readonly names?: RegExp;
  /** The files in which they are; all when absent. */
  readonly files?: RegExp;
  readonly why: string;
}

export const oldWords: readonly OldWord[] = [
  { words: ["teller", "tellers"], use: "broadcaster" },
  { words: ["heir", "heirs"], use: "backup" },
  { words: ["desk", "desks", "board", "boards"], use: "coordinator, table or channel" },
  { words: ["told", "untold"], use: "advertised, synced or reported", isEnglish: true },
  { words: ["welcome", "welcomes"], use: "join compaction" },
  {
    words: ["life", "lives"],
    use: "epoch",
    isEnglish: true,
    allowed: [{ names: /[hH]alfLi(fe|ves)/, why: "a half-life" }],
  },
  {
    words: ["standing", "standings"],
    use: "feed quality",
    isEnglish: true,
  },
  { words: ["worth"], use: "quality, or savings", isEnglish: true },
  { words: ["gone-target", "gone-targets"], use: "tombstones" },
  { words: ["reach-watch"], use: "reachability" },
  { words: ["pool-moment"], use: "decision snapshot" },
  { words: ["should-meet"], use: "burst rendezvous" },
  {
    words: ["unseen-work", "unseen-tokens"],
    use: "estimated peer tokens, or load",
  },
  {
    words: ["knee", "knees"],
    use: "saturation limit",
    allowed: [
      {
        files: /^(packages\/simulator|apps\/router\/(src|test)\/(simulate|commands\/simulate\.ts$))/,
        why: "in simulations, the rate beyond which waiting times grow without end",
      },
    ],
  },
  {
    words: ["lane", "lanes"],
    use: "class partition",
    allowed: [{ files: /^packages\/core\/(src|test)\/hash\//, why: "the lanes of a vectorised hash" }],
  },
  { words: ["class-turns"], use: "deficit scheduler" },
  { words: ["eased"], use: "capacity freed" },
  {
    words: ["patience", "patient", "patiently", "impatient"],
    use: "max cold wait, or timeout",
  },
  { words: ["crowd", "crowds", "crowded", "crowding"], use: "panic mode, or overload" },
  { words: ["doubt", "doubts", "doubted"], use: "half-open, or unverified", isEnglish: true },
  { words: ["leave-alone", "left-alone"], use: "Retry-After cooldown, or circuit open", isEnglish: true },
  { words: ["select-sure"], use: "prefer healthy" },
  { words: ["body-room"], use: "body memory budget" },
  { words: ["errand", "errands"], use: "load job" },
  { words: ["surplus"], use: "excess, or rejected" },
  { words: ["ways"], use: "handlers, branches or combinations", isEnglish: true },
  {
    words: ["duty", "duties"],
    use: "assigned role",
  },
  { words: ["rent", "rents"], use: "copy credit" },
  {
    words: ["left-out"],
    use: "excluded, or ignored",
    isEnglish: true,
    allowed: [{ files: /^packages\/policies\/src\/ablation\.ts$/, why: "what an ablation leaves out of a policy" }],
  },
  { words: ["byte-hold"], use: "growable buffer" },
];

const code = /^(packages|apps|bench|test|scripts|deploy|examples)\/.*\.(ts|mjs)$/;

/** Most texts and names have nothing in which this finds anything. */
const anyOldWord = new RegExp(
  `(?:${oldWords
    .flatMap(({ words }) => words.map((word) => word.replace(/-.*/, "")))
    .map((word) => `(?<![A-Za-z])${word}|${word[0]?.toUpperCase()}${word.slice(1)}`)
    .join("|")})(?![a-z])`,
);

/** No old word is part of an identifier, of the name of a file, or of the title of a test. Prose and data may say them. */
export function checkWords(tree: Tree): string[] {
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (!code.test(file)) continue;
    const path = file.replace(/\.(ts|mjs)$/, "");
    for (const { word, use } of oldWordsIn(path, { file })) {
      found.push(violation(file, text, 0, `is named with ${word}: the field says ${use}`));
    }
    for (const { name, offset, isTitle } of namesOf(file, text)) {
      for (const { word, use } of oldWordsIn(name, { file, isTitle })) {
        found.push(violation(file, text, offset, `${name} has ${word}: the field says ${use}`));
      }
    }
  }
  return [...new Set(found)];
}

const voice = "docs/site/voice.yaml";
const messages = /^(packages|apps|bench)\/.*src\/.*\.ts$/;

/** Words that documents never use are in no message, help text or description either. */
export function checkMessages(tree: Tree): string[] {
  const { rules } = parse(tree.get(voice) ?? "rules: {}") as VoiceRules;
  const terms = (rules.terminology?.terms ?? []).map(([words, use]) => ({
    words: new RegExp(`\\b(?:${words})\\b`, "i"),
    use,
  }));
  const any = new RegExp(terms.map(({ words }) => words.source).join("|"), "i");
  const found: string[] = [];
  for (const [file, text] of tree) {
    if (terms.length === 0 || !messages.test(file) || !any.test(text)) continue;
    const check = (message: string, offset: number): void => {
      if (!message.trim().includes(" ")) return;
      for (const { words, use } of terms) {
        const [word] = words.exec(message) ?? [];
        if (word !== undefined) found.push(violation(file, text, offset, `a message has ${word}: say ${use}`));
      }
    };
    new Visitor({
      Literal({ value, start }) {
        if (typeof value === "string") check(value, start);
      },
      TemplateLiteral(template) {
        check(textOf(template), template.start);
      },
    }).visit(parseSync(file, text).program);
  }
  return found;
}

interface VoiceRules {
  readonly rules: { readonly terminology?: { readonly terms: readonly (readonly [words: string, use: string])[] } };
}

interface Name {
  readonly name: string;
  readonly offset: number;
  readonly isTitle: boolean;
}

/** The identifiers of a source, and the titles of its tests. */
function namesOf(file: string, text: string): readonly Name[] {
  if (!anyOldWord.test(text)) return [];
  const names: Name[] = [];
  const add = (name: string, offset: number, isTitle = false): void => {
    if (anyOldWord.test(name)) names.push({ name, offset, isTitle });
  };
  new Visitor({
    Identifier: ({ name, start }) => add(name, start),
    PrivateIdentifier: ({ name, start }) => add(name, start),
    CallExpression({ callee, arguments: [title] }) {
      if (!/^(describe|it|test)(?![a-z])/.test(text.slice(callee.start, callee.end))) return;
      if (title?.type === "Literal" && typeof title.value === "string") add(title.value, title.start, true);
      if (title?.type === "TemplateLiteral") add(textOf(title), title.start, true);
    },
  }).visit(parseSync(file, text).program);
  return names;
}

function textOf({ quasis }: TemplateLiteral): string {
  return quasis.map(({ value }) => value.raw).join(" ");
}

function oldWordsIn(
  name: string,
  { file, isTitle = false }: { readonly file: string; readonly isTitle?: boolean },
): readonly { readonly word: string; readonly use: string }[] {
  const parts = `-${partsOf(name).join("-")}-`;
  return oldWords.flatMap(({ words, use, isEnglish, allowed = [] }) => {
    const word = words.find((each) => parts.includes(`-${each}-`));
    if (word === undefined || (isTitle && isEnglish)) return [];
    const isAllowed = allowed.some(({ names, files }) => (names?.test(name) ?? true) && (files?.test(file) ?? true));
    return isAllowed ? [] : [{ word, use }];
  });
}

/** The parts of a name, or the words of a text, in lower case. */
function partsOf(name: string): readonly string[] {
  return name
    .replace(/(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/g, "-")
    .toLowerCase()
    .split(/[^a-z\d]+/)
    .filter(Boolean);
}
