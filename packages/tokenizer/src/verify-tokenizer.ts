import { createSeededRandom, type HttpClient, type Random } from "@espalier/core";
import type { ChatDialect } from "./chat/chat-dialect.ts";
import { fetchTokens, tokenizeBody } from "./modes/engine-mode.ts";
import { promptSource } from "./prompt-request.ts";
import type { TextTokenizer } from "./text/text-tokenizer.ts";

/** A prompt that both sides tokenize. */
export type VerifyCase =
  | { readonly name: string; readonly prompt: string }
  | {
      readonly name: string;
      readonly messages: readonly unknown[];
      readonly tools?: readonly unknown[];
      readonly tool_choice?: unknown;
      readonly reasoning_effort?: string;
    };

export interface VerifyOptions {
  readonly tokenizer: TextTokenizer;
  /** Renders a chat with the model's template; without it chats are skipped. */
  readonly render?: (fields: Readonly<Record<string, unknown>>) => string;
  readonly http: HttpClient;
  /** The base URL of an engine. */
  readonly url: string;
  /** The model's name at that engine. */
  readonly model: string;
  readonly cases: readonly VerifyCase[];
  /** The dialect of the engine; the newest vLLM's by default. */
  readonly dialect?: ChatDialect;
  /** Timeout of each answer (10 s). */
  readonly timeoutMs?: number;
}

export interface VerifyRow {
  readonly case: string;
  readonly ok: boolean;
  readonly tokens: number;
  /** The index of the first different token, and both tokens there; absent on the side that has ended. */
  readonly firstDifference?: {
    readonly at: number;
    readonly ours: number | undefined;
    readonly engine: number | undefined;
  };
  /** Why nothing could be compared. */
  readonly error?: string;
}

const defaultTimeoutMs = 10_000;

/**
 * Compares tokens with those of an engine's `POST /tokenize`, case by case. A case that cannot be compared is a failed
 * row with the reason.
 */
export async function verifyTokenizer(options: VerifyOptions): Promise<readonly VerifyRow[]> {
  const rows: VerifyRow[] = [];
  for (const one of options.cases) {
    if ("messages" in one && !options.render) continue;
    try {
      rows.push(await verifyCase(one, options));
    } catch (error) {
      rows.push({
        case: one.name,
        ok: false,
        tokens: 0,
        error: error instanceof Error ? error.message : String(error),
      });
    }
  }
  return rows;
}

async function verifyCase(one: VerifyCase, options: VerifyOptions): Promise<VerifyRow> {
  const { name, ...fields } = one;
  const { tokenizer, http, url, model, dialect, timeoutMs = defaultTimeoutMs } = options;
  const request = { endpoint: "chat", fields, ...(dialect && { dialect }) };
  const isChat = "messages" in one;
  const body = isChat ? tokenizeBody(model, request, promptSource(request)) : JSON.stringify({ model, ...fields });
  const ours = isChat
    ? tokenizer.encode(options.render?.(fields) ?? "", { addSpecialTokens: false })
    : tokenizer.encode(one.prompt, { addSpecialTokens: true });
  const engine = await fetchTokens({ http, url, timeoutMs, body });
  const length = Math.max(ours.length, engine.length);
  let at = 0;
  while (at < length && ours[at] === engine[at]) at++;
  if (at === length) return { case: name, ok: true, tokens: length };
  return { case: name, ok: false, tokens: ours.length, firstDifference: { at, ours: ours[at], engine: engine[at] } };
}

/** A text on which tokenizers are likely to differ. */
interface HardText {
  readonly name: string;
  readonly text: string;
}

/** Pieces that are combined at random. */
const pieces: readonly string[] = [
  " ",
  "  ",
  "\n",
  "\n\n",
  "\r\n",
  "\t",
  "\u00a0",
  "\u3000",
  "'s",
  "'LL",
  "'ſ",
  "’t",
  "don't",
  "WORD",
  "word",
  "Größe",
  "ﬁne",
  "İi",
  "ΣΑΣ",
  "naïve",
  "e\u0301",
  "a\u0323\u0302",
  "1,234.5",
  "²½①",
  "٣٤٥",
  "中文",
  "日本語テキスト",
  "か\u3099",
  "한국어",
  "\u1112\u1161\u11ab",
  "हिन्दी",
  "ไทย",
  "עִבְרִית",
  "العَرَبِيَّة",
  "🙂",
  "👩‍👩‍👧‍👦",
  "🇫🇷",
  "❤️",
  "\u200b",
  "\u200d",
  "\ufeff",
  "\u0000",
  "\u0007",
  "\u0085",
  "\u2028",
  "\ud800",
  "\udc00",
  "_",
  "-->",
  "!=",
  "{}",
  "//",
  "\\n",
  "<|",
  "|>",
  "▁",
  "▁▁",
  "<0x0A>",
  "=".repeat(5),
  "x".repeat(40),
];

const scripts: readonly (readonly [string, string])[] = [
  ["Latin with marks", "Příliš žluťoučký kůň úpěl ďábelské ódy; Zażółć gęślą jaźń; Ða þing; Ærøskøbing"],
  ["Vietnamese, decomposed", "Tiếng Việt có nhiều dấu thanh".normalize("NFD")],
  ["Cyrillic", "Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, ђак"],
  ["Greek", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΟΣ ΣΟΦΙΑΣ ὁ ἄνθρωπος"],
  ["Arabic", "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت — ٠١٢٣٤ ﷽"],
  ["Hebrew", "דג סקרן שט בים מאוכזב ולפתע מצא חברה, שָׁלוֹם"],
  ["Devanagari", "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का क़िला १२३"],
  ["Indic", "আমি কাঁচ খেতে পারি। நான் கண்ணாடி. నేను గాజు. ഞാൻ കണ്ണാടി. ನಾನು ಗಾಜು"],
  ["Thai, Lao, Khmer, Burmese", "เป็นมนุษย์สุดประเสริฐ ຂອ້ຍກິນແກ້ວ ខ្ញុំអាចញុំ ကျွန်တော် မှန်စားနိုင်တယ်"],
  ["Chinese", "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。𠮷野家 㐂 ⿰亻言"],
  ["Japanese", "いろはにほへと　ちりぬるを　ｶﾀｶﾅ ガギグ がぎぐ ㌔㍉ 〇〆ヶ"],
  ["Korean", "다람쥐 헌 쳇바퀴에 타고파 — 한글 자모 ㄱㄴㄷ 각각"],
  ["Georgian, Armenian, Ethiopic", "ქართული ᲥᲐᲠᲗᲣᲚᲘ Հայերեն և ﬓ አማርኛ ፩፪፫ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ"],
  ["historic scripts", "𐌰𐌱𐌲 𓀀𓁐 𒀀𒈨 𐎀𐎁 𝒜𝓈𝒸𝓇 𝟘𝟙𝟚 ᚠᚢᚦ ⠓⠑"],
  ["recent letters", "ꟊ Ꟛ 𐞁 𞤀 𞸀 ࢏ ౜ 𖺠 𲎰 𞤥 ᢀ ৾"],
  ["emoji", "🙂👍🏽👩🏿‍🚀🏴󠁧󠁢󠁥󠁮󠁧󠁿🏳️‍⚧️👨‍👩‍👧‍👦1️⃣#️⃣❤️‍🔥🇺🇳🇫🇷🫠🫨"],
  ["combining marks", "Z̸̧̛a̵̡͝l̶̨͐g̷̢̛o̴̧̐ a\u0300\u0301\u0302\u0323 \u0301start e\u0323\u0301\u0315"],
  ["compatibility forms", "ﬁ ﬀ Å Å Ω Ω ㎏ ½ ² ™ № ℃ ﷺ １２３ ａｂｃ ㍿ ⑴"],
  ["jamo", "\u1100\u1161\u11a8\u1112\u1161\u11ab \uac00\u11a8 \u1100\u1161\u1175"],
];

const layout: readonly (readonly [string, string])[] = [
  ["empty", ""],
  ["one space", " "],
  ["only spaces", " ".repeat(77)],
  ["spaces before and after", "   a  b   c    "],
  ["mixed white space", " \t \n\n \r\n\r\n\t\t \v\f \u00a0 \u2003 \u3000 \u0085 \u2028 end "],
  ["line ends", "a\nb\r\nc\rd\n\n\ne \n f\n "],
  [
    "control characters",
    `${Array.from({ length: 32 }, (_, index) => String.fromCharCode(index)).join("")}\u007f\u0080\u009f`,
  ],
  ["lone surrogates", "a\ud800b\udfffc\ud83d \ude00\udc00\ud800"],
  ["invisible", "a\u200bb\u200cc\u200dd\ufeffe\u00adf\u2060g\u{e0001}h\ufe0fi"],
  ["contractions", "I'm you're he's we'd they'll it've CAN'T Don'T 'S 'ſ 'Sx 'K 's't''re'''ve O'Neill’s"],
  ["numbers", "1 12 123 1234 12345 1234567890 3.14 1e-9 0xff ٣٤٥ ½ Ⅷ 1٢3 ²³ 𝟘𝟙"],
  ["punctuation", "!?!... -- --- —–‒ ''\"\"``«»„“”¿¡ ;:,.,; #$%&*+/<=>@\\^_|~ !\n?\n\n."],
  ["code", 'def f(x: int) -> str:\n    return f"{x!r:>10}"\n\n\tif(a&&b||!c){/*  */ x+=1;}  // end\r\n'],
  ["markup", '<p class="a">x &amp; y</p>\n<!-- c -->\n| a | b |\n|---|---|\n```js\nlet a;\n```\n'],
  ["JSON", '{"a":[1,2.5e3,null,true],"b":{"c":"\\u00e9\\n"},"d":""}'],
  ["a word without end", "a".repeat(3_000)],
  ["one digit without end", "7".repeat(2_000)],
  ["one sign without end", "=".repeat(2_000)],
  ["one ideograph without end", "好".repeat(1_500)],
  ["one emoji without end", "🙂".repeat(1_000)],
  ["one mark without end", `e${"\u0301".repeat(500)}`],
  ["many line ends", "\n".repeat(700)],
  ["base64", "iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO".repeat(8)],
];

/** Parts of a special token and its neighbourhood: only the whole token must match. */
function aroundToken(token: string): readonly string[] {
  return [
    token,
    `a${token}b`,
    `a ${token} b`,
    ` \n${token}\n ${token}${token}`,
    token.slice(0, -1),
    token.slice(1),
    `${token.slice(0, -1)} ${token.slice(-1)}`,
    `${token}${token.slice(0, Math.ceil(token.length / 2))}`,
    `${token.slice(0, Math.ceil(token.length / 2))}${token}`,
    token.toUpperCase(),
    `e${token}\u0301`,
    `9${token}9 _${token}_ é${token}é`,
  ];
}

/**
 * Texts on which tokenizers are likely to differ: all kinds of scripts, white space, marks, very long words, special
 * tokens written by a user, and random mixtures of them.
 *
 * @param options.tokens special and other added tokens to put into texts
 * @param options.mixtures how many random texts to add
 */
export function hardTexts(
  options: { readonly tokens?: readonly string[]; readonly mixtures?: number; readonly random?: Random } = {},
): readonly HardText[] {
  const { tokens = [], mixtures = 100, random = createSeededRandom(1) } = options;
  const named = [...scripts, ...layout].map(([name, text]) => ({ name, text }));
  const around = tokens.flatMap((token) =>
    aroundToken(token).map((text, index) => ({ name: `around ${token}, ${index}`, text })),
  );
  const choices = [...pieces, ...tokens, ...scripts.map(([, text]) => text.slice(0, 9))];
  const mixed = Array.from({ length: mixtures }, (_, index) => ({
    name: `mixture ${index}`,
    text: Array.from({ length: 1 + random.integer(40) }, () => choices[random.integer(choices.length)]!).join(""),
  }));
  return [...named, ...around, ...mixed];
}
