// Each rule of textlint.yaml is shown a sentence that breaks it: a rule that cannot fail is a defect. `npm run docs:check` runs this.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { findings } from "../../scripts/sentence-lines.mjs";

const site = fileURLToPath(new URL(".", import.meta.url));
const program = join(site, "node_modules", ".bin", "textlint");

/** What textlint says of a document with this text, and its exit code. */
function check(text, config = "textlint.yaml") {
  const options = ["--config", config, "--format", "json", "--stdin", "--stdin-filename", "a.md"];
  const { status, stdout } = spawnSync(program, options, {
    cwd: site,
    input: `# Title\n\n${text}\n`,
    encoding: "utf8",
  });
  const messages = JSON.parse(stdout).flatMap((file) => file.messages);
  return { status, messages: messages.map(({ line, message }) => `${line} ${message}`) };
}

/** A sentence of this many words. */
const words = (count) => `${"Word ".repeat(count - 1)}end.`.replaceAll(/ Word/g, (_, at) => ` word${at}`);

const bad = {
  "a sentence of 31 words": [words(31), "3 Exceeds the maximum word count of 30."],
  "such a sentence in a list": [`- ${words(31)}`, "3 Exceeds the maximum word count of 30."],
  "a word twice": ["The router sends the the request.", '3 "the" is repeated'],
  "a weasel word": ["The router is very\nfast.", "3 Incorrect term: “very”, use “a figure or nothing” instead"],
  "a word that says nothing": ["It simply works.", "3 Incorrect term: “simply”, use “nothing” instead"],
  "a diary of days": ["Since yesterday it answers.", "3 Incorrect term: “yesterday”, use “a date or nothing” instead"],
  "a diary of nights": [
    "The night to Tuesday it ran.",
    "3 Incorrect term: “The night to”, use “A date or nothing” instead",
  ],
  "a diary of what is new": ["Now we drop it.", "3 Incorrect term: “Now we”, use “What is” instead"],
  "a name's spelling": ["Run it in kubernetes.", "3 Incorrect term: “kubernetes”, use “Kubernetes” instead"],
  "a word's spelling": ["Written in Java Script.", "3 Incorrect term: “Java Script”, use “JavaScript” instead"],
  "an older word of ours": ["Two tellers took part.", "3 Incorrect term: “tellers”, use “broadcaster” instead"],
};

for (const [name, [text, message]] of Object.entries(bad)) {
  test(`${name} is told`, () => assert.deepEqual(check(text), { status: 1, messages: [message] }));
}

test("plain sentences and code pass", () => {
  const good = [
    words(30),
    "Set `very` or `kubernetes`:",
    "```sh\nsimply the the vllm\n```",
    "An id of vLLM times out.",
  ];
  assert.deepEqual(check(good.join("\n\n")), { status: 0, messages: [] });
});

const unvoiced = {
  "a program that tells": [
    "Routers tell each other.",
    "3 Incorrect term: “tell”, use “send, report or advertise” instead",
  ],
  "a cross that is mended": ["It says how to mend it.", "3 Incorrect term: “mend”, use “fix or recover” instead"],
  "a clause for a noun": ["It serves whoever asks.", "3 Incorrect term: “whoever”, use “the noun” instead"],
};

for (const [name, [text, message]] of Object.entries(unvoiced)) {
  test(`${name} is reported`, () => assert.deepEqual(check(text, "voice.yaml"), { status: 1, messages: [message] }));
}

test("prose has one sentence a line, and only prose", () => {
  const wrong =
    "# A title. Two\n\nOne sentence. Another (e.g. this)\none of `a. B`.\n\n- **A lead.** An item. Its end.\n\n| A. B | c |\n";
  const right =
    "# A title. Two\n\nOne sentence.\nAnother (e.g. this) one of `a. B`.\n\n- **A lead.** An item.\n  Its end.\n\n| A. B | c |\n";
  assert.deepEqual(
    findings(wrong).map(({ line }) => line),
    [3, 4, 6],
  );
  assert.deepEqual(findings(right), []);
});
