"""Makes the tokenizers of this folder and the one that the package ships; see README.md. Tests do not run it."""

import base64
import glob
import json
import os
import random
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.abspath(os.path.join(here, "..", "..", "..", ".."))

SENTENCES = """
The router sends each request to the engine that already holds the longest prefix of it.
A block of sixteen tokens is the smallest thing that a cache can share between two prompts.
When a garden wall is warm, the pear tree that grows along it ripens two weeks early.
What time does the train leave, and who will meet us at the station? I'd say at 10:45, don't you think?
Der Zug fährt um halb neun ab; größere Koffer müssen im Gepäckwagen bleiben.
Le vieux pêcheur a réparé ses filets, puis il a mangé une crème brûlée à côté du phare.
El niño pequeño corrió hasta la montaña y gritó: ¡qué frío! ¿Quién viene mañana?
O coração da cidade não dorme; as ruas estão cheias de música e de pão quente.
Il ponte è più lungo di quanto pensassi, perché attraversa l'intera città.
Żółta łódka płynęła powoli przez jezioro, a ćma siadła na wiośle.
Příliš rychlé auto zastavilo u řeky, kde děti krmily kachny.
Gökyüzü açıktı, İstanbul'un ışıkları suya düşüyordu; çocuklar şarkı söyledi.
Mùa hè ở Việt Nam rất nóng, nhưng buổi tối thì dễ chịu hơn nhiều.
Поезд отправляется утром, и пассажиры уже ждут на платформе с горячим чаем.
Мій дідусь садить яблуні біля хати, і щороку їх стає більше.
Το πλοίο έφτασε στο νησί όταν ο ήλιος έδυε πίσω από τους λόφους. ΟΔΟΣ ΣΟΦΙΑΣ
القطار يغادر في الصباح الباكر، والركاب ينتظرون على الرصيف مع الشاي.
הרכבת יוצאת בבוקר, והנוסעים מחכים ברציף עם תה חם.
قطار صبح زود حرکت می‌کند و مسافران روی سکو چای می‌نوشند.
रेलगाड़ी सुबह जल्दी निकलती है और यात्री चाय के साथ प्लेटफ़ॉर्म पर प्रतीक्षा करते हैं।
ট্রেন সকালে ছাড়ে এবং যাত্রীরা চা হাতে অপেক্ষা করেন।
ரயில் காலையில் புறப்படுகிறது, பயணிகள் தேநீருடன் காத்திருக்கிறார்கள்.
รถไฟออกแต่เช้า ผู้โดยสารรออยู่ที่ชานชาลาพร้อมชาร้อน
列车清晨出发，乘客们在站台上喝着热茶等待。今天天气很好，我们去公园吧！
列車は朝早く出発し、乗客はホームで温かいお茶を飲みながら待っています。カタカナもあります。
기차는 아침 일찍 출발하고, 승객들은 따뜻한 차를 들고 승강장에서 기다립니다.
მატარებელი დილით გადის და მგზავრები ჩაით ელოდებიან.
Գնացքը մեկնում է առավոտյան, ուղևորները սպասում են թեյով։
ባቡሩ በጠዋት ይነሳል፤ ተሳፋሪዎች ሻይ ይዘው ይጠብቃሉ።
def mean(values): return sum(values) / len(values) if values else 0.0
const total = items.map((item) => item.price * item.count).reduce((a, b) => a + b, 0);
SELECT name, COUNT(*) FROM orders WHERE price >= 19.99 GROUP BY name ORDER BY 2 DESC;
{"role": "user", "content": "How many blocks fit into 65,536 tokens?", "stream": true}
<div class="card"><a href="https://example.org/a?b=c&d=e">link</a></div>
for (let i = 0; i < 1024; i++) { sum += table[i] ^ 0xff00; }
E = mc², ∑ xᵢ ≤ ∞, α → β, ½ + ¼ = ¾, 3.14159, 1,234,567, №5, ™, ©, €50, £20, ¥300
🙂 👍🏽 👩‍👩‍👧‍👦 🇫🇷 🏳️‍🌈 ❤️ ✈️ 1️⃣ 🚀🚀🚀
"""


def corpus():
    lines = [line for line in SENTENCES.splitlines() if line.strip()]
    documents = sorted(glob.glob(os.path.join(root, "docs", "*.md"))) + [os.path.join(root, "README.md")]
    written = []
    for path in documents:
        with open(path, encoding="utf-8") as file:
            written += [line for line in file.read().splitlines() if line.strip()]
    shuffler = random.Random(7)
    texts = written + lines * 12
    shuffler.shuffle(texts)
    return texts


LLAMA_LIKE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHAT_TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}"
    "{{- messages[0].content + '\\n\\n' }}{%- endif %}{{- 'Functions that may be called:' }}"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '<|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if message.role != 'system' or not loop.first %}"
    "{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}"
    "{%- for call in message.tool_calls or [] %}"
    "{{- '\\n<|call|>' + call.function.name + ' ' + (call.function.arguments | tojson) }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def added(token_id, content, **flags):
    token = dict(id=token_id, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False)
    return {**token, "special": True, **flags}


def write(folder, tokenizer, config):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
        json.dump(tokenizer, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, ensure_ascii=False, indent=2)
        file.write("\n")


def short_merges(tokenizer):
    merges = tokenizer["model"]["merges"]
    tokenizer["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in merges]
    return tokenizer


def train_byte_level(size, pre_tokenizer, normalizer, min_frequency=2):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False, min_frequency=min_frequency)
    tokenizer.train_from_iterator(corpus(), trainer)
    return short_merges(json.loads(tokenizer.to_str()))


def espalier_tiny():
    split = pre_tokenizers.Split(Regex(LLAMA_LIKE), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = train_byte_level(4096, pre_tokenizers.Sequence([split, byte_level]), normalizers.NFC(), 1)
    size = len(tokenizer["model"]["vocab"])
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|call|>", "<|image|>"]
    tokenizer["added_tokens"] = [added(size + index, name) for index, name in enumerate(names)]
    config = dict(
        bos_token=None, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token=None, add_bos_token=False,
        model_max_length=131072, split_special_tokens=False, tokenizer_class="PreTrainedTokenizerFast",
        chat_template=CHAT_TEMPLATE,
    )
    write(os.path.join(here, "..", "..", "models", "espalier-tiny"), tokenizer, config)


def gpt2_like():
    tokenizer = train_byte_level(1200, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True), None)
    size = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"] = [
        added(size, "<s>"),
        added(size + 1, "</s>"),
        added(size + 2, "<mask>", lstrip=True),
        added(size + 3, "<right>", rstrip=True),
        added(size + 4, "<both>", lstrip=True, rstrip=True),
        added(size + 5, "word", single_word=True, special=False, normalized=True),
        added(size + 6, "<|im", special=False),
        added(size + 7, "<|im_start|>"),
        added(size + 8, "  ", special=False, normalized=True),
        added(size + 9, "Größe", special=False, normalized=True),
    ]
    tokenizer["post_processor"] = dict(
        type="RobertaProcessing", sep=["</s>", size + 1], cls=["<s>", size], trim_offsets=True, add_prefix_space=True
    )
    write(os.path.join(here, "gpt2-like"), tokenizer, dict(bos_token="<s>", eos_token="</s>"))


def sentencepiece_bpe():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=3000, special_tokens=specials, limit_alphabet=160, show_progress=False, max_token_length=12
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.pre_tokenizer = None
    model = short_merges(json.loads(tokenizer.to_str()))
    model["pre_tokenizer"] = None
    model["added_tokens"] = [added(index, name) for index, name in enumerate(specials[:3])]
    model["added_tokens"] += [added(len(model["model"]["vocab"]), "[INST]"), added(len(model["model"]["vocab"]) + 1, "[/INST]")]
    bos = dict(id="<s>", ids=[1], tokens=["<s>"])
    single = [dict(SpecialToken=dict(id="<s>", type_id=0)), dict(Sequence=dict(id="A", type_id=0))]
    pair = single + [dict(Sequence=dict(id="B", type_id=1))]
    model["post_processor"] = dict(type="TemplateProcessing", single=single, pair=pair, special_tokens={"<s>": bos})
    write(os.path.join(here, "spm-bpe"), model, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>"))


RULES = [
    ("ﬁ", "fi"), ("™", "TM"), ("①", "1"), ("½", "1/2"), ("Ａ", "A"), ("ａ", "a"), ("\u3000", " "), ("\t", " "),
    ("\u00a0", " "), ("…", "..."), ("e\u0301", "é"), ("か\u3099", "が"), ("\u200b", " "), ("\u0007", ""), ("㍿", "株式会社"),
]


def unigram():
    with tempfile.TemporaryDirectory() as folder:
        rules, texts, prefix = (os.path.join(folder, name) for name in ("rules.tsv", "texts", "model"))
        points = lambda text: " ".join(f"{ord(character):X}" for character in text)
        with open(rules, "w", encoding="utf-8") as file:
            file.writelines(f"{points(source)}\t{points(target)}\n" for source, target in RULES)
        with open(texts, "w", encoding="utf-8") as file:
            file.writelines(text + "\n" for text in corpus())
        sentencepiece.SentencePieceTrainer.train(
            input=texts, model_prefix=prefix, vocab_size=2000, model_type="unigram", byte_fallback=True,
            normalization_rule_tsv=rules, character_coverage=0.995, minloglevel=2, hard_vocab_limit=False,
        )
        proto = sentencepiece_model_pb2.ModelProto()
        with open(prefix + ".model", "rb") as file:
            proto.ParseFromString(file.read())
    vocab = [[piece.piece, round(piece.score, 6)] for piece in proto.pieces]
    charsmap = base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()
    collapse = dict(type="Replace", pattern=dict(Regex=" {2,}"), content=" ")
    tokenizer = dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        normalizer=dict(type="Sequence", normalizers=[dict(type="Precompiled", precompiled_charsmap=charsmap), collapse]),
        pre_tokenizer=dict(type="Metaspace", replacement="▁", prepend_scheme="always", split=True),
        post_processor=dict(
            type="TemplateProcessing",
            single=[dict(Sequence=dict(id="A", type_id=0)), dict(SpecialToken=dict(id="</s>", type_id=0))],
            pair=[dict(Sequence=dict(id="A", type_id=0)), dict(Sequence=dict(id="B", type_id=1))],
            special_tokens={"</s>": dict(id="</s>", ids=[2], tokens=["</s>"])},
        ),
        decoder=dict(type="Metaspace", replacement="▁", prepend_scheme="always", split=True),
        model=dict(type="Unigram", unk_id=0, vocab=vocab, byte_fallback=True),
    )
    write(os.path.join(here, "unigram"), tokenizer, dict(eos_token="</s>", unk_token="<unk>"))


if __name__ == "__main__":
    for make in (espalier_tiny, gpt2_like, sentencepiece_bpe, unigram):
        make()
        print(make.__name__, file=sys.stderr)
