import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { createTextTokenizer, readSurroundings } from "../../src/text/text-tokenizer.ts";
import { vocabularyOf } from "../support/models-made.ts";
import { referenceOf } from "../support/reference.ts";

const text = { Sequence: { id: "A", type_id: 0 } };
const special = (id: string): object => ({ SpecialToken: { id, type_id: 0 } });
const known = (names: Readonly<Record<string, readonly number[]>>): object =>
  Object.fromEntries(Object.entries(names).map(([id, ids]) => [id, { id, ids, tokens: ids.map(String) }]));
const template = (single: readonly object[], names: Readonly<Record<string, readonly number[]>>): object => ({
  type: "TemplateProcessing",
  single,
  pair: [text, { Sequence: { id: "B", type_id: 1 } }],
  special_tokens: known(names),
});
const sequence = (...processors: object[]): object => ({ type: "Sequence", processors });
const bert = { type: "BertProcessing", sep: ["[SEP]", 102], cls: ["[CLS]", 101] };
const roberta = {
  type: "RobertaProcessing",
  sep: ["</s>", 2],
  cls: ["<s>", 0],
  trim_offsets: true,
  add_prefix_space: true,
};
const byteLevel = { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true };

const cases: readonly { name: string; part: unknown; before: readonly number[]; after: readonly number[] }[] = [
  { name: "none", part: null, before: [], after: [] },
  { name: "bytes", part: byteLevel, before: [], after: [] },
  { name: "BERT", part: bert, before: [101], after: [102] },
  { name: "RoBERTa", part: roberta, before: [0], after: [2] },
  { name: "a template of the text", part: template([text], {}), before: [], after: [] },
  { name: "a start", part: template([special("s"), text], { s: [1] }), before: [1], after: [] },
  { name: "an end", part: template([text, special("e")], { e: [2] }), before: [], after: [2] },
  {
    name: "several on both sides",
    part: template([special("s"), special("t"), text, special("e"), special("s")], { s: [1], t: [3], e: [2] }),
    before: [1, 3],
    after: [2, 1],
  },
  {
    name: "several ids by one name",
    part: template([special("s"), text], { s: [4, 5, 6] }),
    before: [4, 5, 6],
    after: [],
  },
  { name: "an empty sequence", part: sequence(), before: [], after: [] },
  {
    name: "bytes and a template",
    part: sequence(byteLevel, template([special("s"), text], { s: [1] })),
    before: [1],
    after: [],
  },
  { name: "one around the other", part: sequence(roberta, bert), before: [101, 0], after: [2, 102] },
  {
    name: "sequences in sequences",
    part: sequence(sequence(sequence(bert)), roberta),
    before: [0, 101],
    after: [102, 2],
  },
];

test.each(cases)("$name", ({ part, before, after }) => {
  expect(readSurroundings(part)).toEqual({ before, after });
});

test.each(cases)("$name: the same as the reference puts there", async ({ part, before, after }) => {
  const model = { type: "BPE", vocab: vocabularyOf(["a"]), merges: [] };
  const reference = referenceOf({ model, post_processor: part });
  const ours = createTextTokenizer({ tokenizer: { model, post_processor: part }, config: {} });
  for (const content of ["", "a", "aaa"]) {
    const wanted = (await reference.encode(content, null, { addSpecialTokens: true })).getIds();
    expect([...ours.encode(content, { addSpecialTokens: true })]).toEqual(wanted);
    expect(wanted).toEqual([...before, ...[...content].map(() => 0), ...after]);
    expect(ours.encode(content, { addSpecialTokens: false })).toHaveLength(content.length);
    expect(ours.encodePiece(content, true)).toHaveLength(content.length);
  }
});

test("nested sequences put each step's tokens around those of the steps before", async () => {
  const random = createSeededRandom(92);
  const model = { type: "BPE", vocab: vocabularyOf(["a"]), merges: [] };
  const draw = (depth: number): object => {
    const kind = random.integer(depth > 0 ? 3 : 2);
    if (kind === 0) return byteLevel;
    if (kind === 1) return { ...bert, sep: ["e", random.integer(90)], cls: ["s", random.integer(90)] };
    return sequence(...Array.from({ length: random.integer(4) }, () => draw(depth - 1)));
  };
  for (let round = 0; round < 60; round++) {
    const post_processor = draw(3);
    const ours = createTextTokenizer({ tokenizer: { model, post_processor }, config: {} });
    const encoding = await referenceOf({ model, post_processor }).encode("aa", null, { addSpecialTokens: true });
    expect([...ours.encode("aa", { addSpecialTokens: true })], JSON.stringify(post_processor)).toEqual(
      encoding.getIds(),
    );
  }
});

test.each<{ part: unknown; says: string }>([
  { part: 5, says: "post_processor is not an object" },
  { part: {}, says: "post_processor is a part without a type, which is not supported" },
  { part: { type: "Truncation" }, says: "post_processor is a Truncation, which is not supported" },
  { part: { type: "Sequence" }, says: "post_processor has no list under processors" },
  { part: sequence(byteLevel, { type: "X" }), says: "post_processor.processors[1] is a X, which is not supported" },
  { part: { type: "BertProcessing", cls: ["c", 1] }, says: "post_processor has no token under sep" },
  { part: { type: "BertProcessing", cls: ["c", "1"], sep: ["s", 2] }, says: "post_processor has no token under cls" },
  { part: { type: "RobertaProcessing", sep: ["s", 2] }, says: "post_processor has no token under cls" },
  { part: { type: "TemplateProcessing" }, says: "post_processor does not contain the text" },
  { part: template([special("s")], { s: [1] }), says: "post_processor does not contain the text" },
  { part: template([text, text], {}), says: "post_processor contains the text twice" },
  { part: template([text, special("e")], { s: [1] }), says: "uses an undeclared special token" },
  { part: template([text, special("toString")], {}), says: "uses an undeclared special token" },
  { part: template([text, special("e")], { e: ["2" as never] }), says: "uses an undeclared special token" },
  { part: template([text, "A" as never], {}), says: "has an item that is neither a text nor a special token" },
  { part: template([text, {}], {}), says: "has an item that is neither a text nor a special token" },
])("$says", ({ part, says }) => {
  expect(() => readSurroundings(part)).toThrow(says);
});
