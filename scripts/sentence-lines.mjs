// `npm run spell` calls this: prose of documents has one sentence a line, so that a diff shows the sentence that changed.
//
//   node scripts/sentence-lines.mjs FILE...           lists the lines that hold more or less than a sentence
//   node scripts/sentence-lines.mjs --write FILE...   wraps these files so
//
// Headings, tables, code, HTML and front matter keep their lines.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

/** A full stop that ends none. */
const abbreviation = /(?:^|[\s(])(?:e\.g|i\.e|vs|etc|cf|approx|No|[A-Z])\.$/;
/** Bold words that open a line stay with the sentence after them. */
const leadIn = /^\*\*[^*]+\*\*$/;
const boundary = /[.!?](?:["')\]*_`]|\]\([^)]*\))*(?:\n|[ \t]+(?=["'(*_[]*[A-Z0-9`]))|:(?:[*_`)])*\n/g;
const listItem = /^(\s*)(?:[-*+]|\d+[.)])\s+/;
const kept = /^\s*(?:#|\||<|>|---|===|!\[|$)/;

/** Lines of prose of a document that hold more or less than one sentence: their numbers and what is wrong. */
export function findings(text) {
  const lines = text.split("\n");
  const wrapped = wrap(text).split("\n");
  if (lines.join("\n") === wrapped.join("\n")) return [];
  const expected = new Set(wrapped);
  const found = lines.flatMap((line, index) =>
    expected.has(line) ? [] : [{ line: index + 1, message: "a line of prose holds one sentence, whole" }],
  );
  return found.length > 0 ? found : [{ line: 1, message: "lines of prose hold one sentence each" }];
}

/** The document with one sentence a line. */
function wrap(text) {
  const out = [];
  let prose;
  const flush = () => {
    if (prose) out.push(...sentencesOf(prose.text).map((one, at) => (at === 0 ? prose.first : prose.rest) + one));
    prose = undefined;
  };
  let fence;
  for (const line of text.split("\n")) {
    const mark = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence || mark) {
      flush();
      if (!fence) fence = mark;
      else if (mark?.startsWith(fence)) fence = undefined;
      out.push(line);
      continue;
    }
    const item = listItem.exec(line);
    const isIndentedCode = !prose && /^ {4}/.test(line) && !item && (out.at(-1) ?? "") === "";
    if (kept.test(line) || isIndentedCode) {
      flush();
      out.push(line);
      continue;
    }
    if (item) {
      flush();
      prose = { first: item[0], rest: " ".repeat(item[0].length), text: line.slice(item[0].length).trim() };
    } else if (prose) {
      prose.text += `\n${line.trim()}`;
    } else {
      const indent = /^\s*/.exec(line)[0];
      prose = { first: indent, rest: indent, text: line.trim() };
    }
  }
  flush();
  return out.join("\n");
}

/** The sentences of a paragraph with its lines. What stands in backticks ends none; a line that ends with a sentence stays. */
function sentencesOf(paragraph) {
  const blind = paragraph.replace(/(`+)(?!`).*?[^`]\1(?!`)/g, (code) => `\`${"x".repeat(code.length - 2)}\``);
  const sentences = [];
  let start = 0;
  for (const { 0: end, index } of blind.matchAll(boundary)) {
    const stop = index + end.length;
    const head = blind.slice(start, index + 1);
    if (abbreviation.test(head) || leadIn.test(blind.slice(start, stop).trim())) continue;
    sentences.push(oneLine(paragraph.slice(start, stop)));
    start = stop;
  }
  sentences.push(oneLine(paragraph.slice(start)));
  return sentences.filter(Boolean);
}

const oneLine = (sentence) => sentence.trim().replaceAll("\n", " ");

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const isWrite = process.argv[2] === "--write";
  const files = process.argv.slice(isWrite ? 3 : 2);
  let isWell = true;
  for (const file of files) {
    const text = readFileSync(file, "utf8");
    if (isWrite) writeFileSync(file, wrap(text));
    else for (const { line, message } of findings(text)) isWell = Boolean(console.log(`${file}:${line}: ${message}`));
  }
  process.exit(isWell ? 0 : 1);
}
