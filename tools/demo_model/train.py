#!/usr/bin/env python3
"""Makes the model files of `fairlead demo`: trains a small byte-level BPE tokenizer on text that
this script writes itself, and puts it, its configuration and its chat template into share/demo/ and
into src/cli/demo_model.cpp, which the program embeds.

    .venv/bin/python tools/demo_model/train.py

The result is the same on every run.
"""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = Path(__file__).resolve().parent.parent.parent
SHARE = ROOT / "share/demo"
SOURCE = ROOT / "src/cli/demo_model.cpp"

VOCABULARY = 3072
CONTEXT = 8192
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]

TEMPLATE = """\
{%- for message in messages -%}
{%- if not loop.first %}{{ '\\n' }}{% endif -%}
{%- if message.role == 'developer' %}{% set role = 'system' -%}
{%- elif message.role == 'function' %}{% set role = 'tool' -%}
{%- else %}{% set role = message.role %}{% endif -%}
{{ '<|' + role + '|>' }}{{ message.content }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}
"""

# The split of words, numbers, punctuation and blanks that byte-level models of today use.
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")

NOUNS = """time year people way day thing man world life hand part child eye woman place work week
case point government company number group problem fact water room mother area money story month lot
right study book word business issue side kind head house service friend father power hour game line
end member law car city community name president team minute idea body information back parent face
others level office door health person art war history party result change morning reason research
girl guy moment air teacher force education engine server request answer question token prompt model
message router worker cache block memory thread queue stream client user assistant system language
letter sentence paper river mountain island harbour ship rope fitting deck anchor sail wind wave sea
weather winter summer garden tree flower animal bird horse fish bread coffee kitchen table window
street station train bridge market price computer machine program function value error test record
example picture music film voice colour light night dream hope plan road map""".split()
VERBS = """be have do say get make go know take see come think look want give use find tell ask work
seem feel try leave call keep let begin help talk turn start show hear play run move live believe
hold bring happen write provide sit stand lose pay meet include continue set learn change lead
understand watch follow stop create speak read allow add spend grow open walk win offer remember
love consider appear buy wait serve die send expect build stay fall cut reach kill remain suggest
raise pass sell require report decide pull explain answer route count measure stream render encode
decode load check print draw carry choose""".split()
ADJECTIVES = """good new first last long great little own other old right big high different small
large next early young important few public bad same able clear fast slow simple quick warm cold
dark bright quiet loud open close free full empty easy hard strong weak certain common real whole
true false central local national social political economic physical human modern natural recent
possible available likely short single current final main deep wide narrow rich poor happy sad kind
gentle careful""".split()
ADVERBS = """very really often never always sometimes usually again still already also almost quite
together today tomorrow yesterday now then here there soon later early quickly slowly clearly
directly probably certainly perhaps however therefore finally""".split()
PLACES = """London Paris Berlin Madrid Rome Vienna Tokyo Beijing Cairo Lagos Lima Boston Chicago
Seattle Sydney Oslo Dublin Prague Lisbon Athens""".split()
PEOPLE = """Alice Bob Carol David Emma Frank Grace Henry Ida Jack Kate Leo Maria Nora Oscar Peter
Rosa Sam Tom Vera""".split()

PATTERNS = [
    "The {adj} {noun} {verb}s the {noun} in {place}.",
    "{person} wants to {verb} a {adj} {noun}, but the {noun} is {adv} {adj}.",
    "What is the {adj} {noun} of the {noun}?",
    "Please {verb} the {noun} and tell me about the {adj} {noun}.",
    "I have never {verb}ed such a {adj} {noun} before.",
    "How do you {verb} a {noun} when there is no {noun}?",
    "It was {adv} {adj}, and the {noun}s were {adj} too.",
    "Write a short story about a {noun} that could {verb} every {noun}.",
    "Can you explain how the {noun} {verb}s, step by step?",
    "There are {number} {noun}s and {number} {noun}s on the {noun}.",
    "We will {verb} it {adv}, because {person} should {verb} the {noun}.",
    "Hello, how are you today? I would like to {verb} the {noun}.",
    "You are a helpful assistant. You answer with {adj} {noun}s.",
    "This is a {adj} test of the {noun}: {number}, {number} and {number}.",
    "Thank you, {person}! That {noun} is {adv} {adj}.",
    "If the {noun} {verb}s, then the {noun} won't {verb}; it's {adj}.",
    "Let's {verb} from {place} to {place} with the {adj} {noun}.",
    "They've {verb}ed the {noun}, haven't they? I don't {verb} it.",
    "Once upon a time in {place}, {person} {verb}ed a {adj} {noun}.",
    "Why is the {noun} {adj}er than the {noun}?",
    "def {noun}_{noun}({noun}, {verb}={number}):\n    return {noun}.{verb}({number})",
    "for (int i = 0; i < {number}; ++i) {{ {verb}({noun}[i]); }}",
    '{{"{noun}": "{adj} {noun}", "{verb}": [{number}, {number}], "{adj}": true}}',
    "# {adj} {noun}\n\n- {verb} the {noun}\n- {verb} the {noun} {adv}\n",
    "SELECT {noun}, {noun} FROM {noun}s WHERE {noun} > {number};",
    "https://www.example.com/{noun}/{verb}?{noun}={number}",
    "Der {noun} ist gut, und die Antwort ist nicht schlecht. Wie geht es dir?",
    "Bonjour {person}, comment allez-vous ? Le {noun} est très {adj}.",
    "Hola {person}, ¿cómo estás? Muchas gracias por el {noun}.",
    "Ciao {person}, come stai? Il {noun} è molto {adj}.",
    "Привет, {person}! Как дела? Спасибо за {noun}.",
    "你好，{person}！今天的天气很好。",
    "こんにちは、{person}さん。お元気ですか？",
    "👋 Hello {person}! 😀 🎉 ✅",
]


def corpus() -> list[str]:
    """Some thousand sentences; frequent words come up more often than rare ones."""
    chance = random.Random(20260101)

    def pick(words: list[str]) -> str:
        return words[min(int(chance.expovariate(4.0) * len(words)), len(words) - 1)]

    lines = []
    for _ in range(12000):
        pattern = PATTERNS[min(int(chance.expovariate(2.0) * len(PATTERNS)), len(PATTERNS) - 1)]
        line = pattern
        for kind, words in (("noun", NOUNS), ("verb", VERBS), ("adj", ADJECTIVES), ("adv", ADVERBS),
                            ("place", PLACES), ("person", PEOPLE)):
            while "{" + kind + "}" in line:
                line = line.replace("{" + kind + "}", pick(words), 1)
        while "{number}" in line:
            line = line.replace("{number}", str(chance.randrange(1, 3000)), 1)
        line = line.replace("{{", "{").replace("}}", "}")
        lines.append(line)
    return lines + [text.capitalize() for text in NOUNS + VERBS + ADJECTIVES + ADVERBS]


def train() -> str:
    """The text of tokenizer.json."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL), min_frequency=2, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    document = json.loads(tokenizer.to_str())
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def files() -> dict[str, str]:
    """Name -> text of every file of the model."""
    tokenizer = train()
    parsed = json.loads(tokenizer)
    ids = {token["content"]: token["id"] for token in parsed["added_tokens"]}
    size = max([*parsed["model"]["vocab"].values(), *ids.values()]) + 1

    def pretty(document: dict) -> str:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    return {
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": pretty({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>",
            "pad_token": "<|end|>", "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
        }),
        "config.json": pretty({
            "architectures": ["FairleadDemo"], "model_type": "fairlead-demo",
            "max_position_embeddings": CONTEXT, "vocab_size": size,
            "eos_token_id": ids["<|end|>"],
        }),
        "generation_config.json": pretty({"eos_token_id": ids["<|end|>"]}),
        "chat_template.jinja": TEMPLATE,
    }


def literal(text: str) -> str:
    """A C++ literal; raw ones are kept below the length that every compiler takes."""
    size = 12000
    pieces = [text[i:i + size] for i in range(0, len(text), size)]
    return "\n    ".join(f'R"demo({piece})demo"' for piece in pieces)


def main() -> None:
    SHARE.mkdir(parents=True, exist_ok=True)
    out = ["// Generated by tools/demo_model/train.py; the same files are in share/demo/.",
           "", '#include "cli/demo_model.hpp"', "", "namespace fairlead::cli {", "",
           "// clang-format off"]
    texts = files()
    for name, text in texts.items():
        (SHARE / name).write_text(text, encoding="utf-8")
    for variable, name in (("tokenizer_json", "tokenizer.json"),
                           ("tokenizer_config_json", "tokenizer_config.json"),
                           ("config_json", "config.json"),
                           ("chat_template", "chat_template.jinja")):
        out += ["", f"std::string_view demo_{variable}() {{", "  return", "    "
                + literal(texts[name]) + ";", "}"]
    out += ["", "// clang-format on", "", "}  // namespace fairlead::cli", ""]
    SOURCE.write_text("\n".join(out), encoding="utf-8")


if __name__ == "__main__":
    main()
