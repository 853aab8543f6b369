"""Ids and text of `fairlead tokenize` against the library `sentencepiece`, on models that its trainer makes here of the
project's pages: every kind of model and option that changes what text becomes."""

import io
import json

import pytest
import sentencepiece
import transformers
from fairlead.tokenizer_texts import Texts, TokenizeCommand, chunks, prose, string_count, tokenizer_rng
from sentencepiece import sentencepiece_model_pb2

COUNT = string_count(300)
SYMBOLS = ["<sep>", "\u2581\u2581", "ab", "  ", "\n", "\u00e9", "<0x", "AB cd", " lead", "of the", "x"]
DENORMALIZER = "41\t61 62\n42 43\t58\n20 20\t20\n44\t\n2047\t3F\n61 62 63 64\t5A\n"
BYTES = {"byte_fallback": True, "vocab_size": 900}
KEPT = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
UNUSED, NORMAL, CONTROL, BYTE = 5, 1, 3, 6
MODELS = {
    "bpe": {"model_type": "bpe", **BYTES, **KEPT, "user_defined_symbols": SYMBOLS, "split_digits": True},
    "bpe_normalized": {"model_type": "bpe", "user_defined_symbols": SYMBOLS, "normalization_rule_name": "nmt_nfkc_cf"},
    "bpe_unknown": {"model_type": "bpe", "character_coverage": 0.98, "unk_surface": "<?>", "bos_id": -1, "control_symbols": ["<ctl>"]},
    "bpe_suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
    "bpe_no_prefix": {"model_type": "bpe", "add_dummy_prefix": False, **BYTES, **KEPT},
    "bpe_long_spaces": {"model_type": "bpe", **BYTES, **KEPT, "allow_whitespace_only_pieces": True, "split_by_whitespace": False},
    "unigram": {"model_type": "unigram"},
    "unigram_bytes": {"model_type": "unigram", **BYTES, "user_defined_symbols": SYMBOLS, "normalization_rule_name": "nfkc_cf"},
    "unigram_suffix": {"model_type": "unigram", "treat_whitespace_as_suffix": True, "remove_extra_whitespaces": False},
    "unigram_no_prefix": {"model_type": "unigram", "add_dummy_prefix": False, "normalization_rule_name": "nfkc"},
    "denormalized": {"model_type": "unigram", "denormalization_rule_tsv": DENORMALIZER},
    "word": {"model_type": "word", "user_defined_symbols": SYMBOLS},
    "char": {"model_type": "char", "byte_fallback": True, "user_defined_symbols": SYMBOLS, "vocab_size": 700},
}


def without_some_pieces(model, rng):
    for piece in model.pieces:
        if piece.type == NORMAL and rng.random() < 0.3:
            piece.type = UNUSED


def with_equal_scores(model, rng):
    for piece in model.pieces:
        if piece.type == NORMAL:
            piece.score = -float(rng.randint(0, 6))


def without_some_characters(model, rng):
    kept = [piece.SerializeToString() for piece in model.pieces if piece.type != NORMAL or len(piece.piece) > 1 or rng.random() < 0.6]
    del model.pieces[:]
    model.pieces.extend(sentencepiece_model_pb2.ModelProto.SentencePiece.FromString(piece) for piece in kept)


# What the trainer does not make: (model, change).
CHANGED = {
    "bpe_pieces_unused": ("bpe", without_some_pieces),
    "bpe_unknown_unused": ("bpe_unknown", without_some_pieces),
    "bpe_equal_scores": ("bpe_long_spaces", with_equal_scores),
    "bpe_parts": ("bpe", without_some_characters),
    "bpe_parts_unknown": ("bpe_unknown", without_some_characters),
    "unigram_pieces_unused": ("unigram_bytes", without_some_pieces),
    "unigram_equal_scores": ("unigram", with_equal_scores),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    made = {}

    def train(name):
        if name not in made:
            made[name] = folder / f"{name}.model"
            if name in CHANGED:
                source, change = CHANGED[name]
                model = sentencepiece_model_pb2.ModelProto.FromString(train(source).read_bytes())
                change(model, tokenizer_rng(f"{name} pieces"))
                made[name].write_bytes(model.SerializeToString())
                return made[name]
            options = {"vocab_size": 600, **MODELS[name]}
            if "denormalization_rule_tsv" in options:
                (folder / "rules.tsv").write_text(options["denormalization_rule_tsv"])
                options["denormalization_rule_tsv"] = str(folder / "rules.tsv")
            model = io.BytesIO()
            lines = [line for line in prose() if line][:1500]
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=model, hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
            made[name].write_bytes(model.getvalue())
        return made[name]

    return train


def texts(rng, model):
    spellings = [piece.piece for piece in model.pieces]
    specials = [*spellings[:20], *rng.sample(spellings, 20), *SYMBOLS, "ABCD", "abcd", "\u2047", "\u2581 ", " \u2581"]
    yield from ["", " ", "   ", "\u2581", "a\u2581\u2581", "\u2581 a", "\u0000", "ABC" * 500, "a" * 3000, "the cat " * 300]
    for text in Texts(rng, specials).take(COUNT):
        if isinstance(text, str) and not any("\ud800" <= c < "\ue000" for c in text):
            yield text


def sequences(rng, model, encoded):
    """Ids to decode: those of texts, and random ones with bytes of whole and of broken characters."""
    of_kind = {kind: [i for i, piece in enumerate(model.pieces) if piece.type == kind] for kind in (CONTROL, BYTE)}
    spaces = [i for i, piece in enumerate(model.pieces) if piece.piece.startswith("\u2581")]
    others = [i for i, piece in enumerate(model.pieces) if piece.type not in (CONTROL, BYTE)]
    for ids in encoded:
        yield ids
        made = []
        for _ in range(rng.randint(1, 12)):
            kind = rng.random()
            if kind < 0.2 and of_kind[BYTE]:
                data = chr(rng.choice([0xE9, 0x4E2D, 0x1F600, 0x41])).encode()[: rng.randint(1, 4)] + rng.choice([b"", b"\xff", b"\x80"])
                made += [of_kind[BYTE][byte] for byte in data]
            elif kind < 0.3:
                # Between the bytes of a character the library's decoder sees them; here they are left out first.
                made += [rng.choice(of_kind[CONTROL]), rng.choice(others)] if not made or made[-1] in others else []
            else:
                made.append(rng.choice(spaces if kind < 0.5 and spaces else others))
        yield made


@pytest.mark.timeout(120 + COUNT // 20)
@pytest.mark.parametrize("name", [*MODELS, *CHANGED])
def test_ids_and_text_are_the_librarys(trained, name):
    path = trained(name)
    rng = tokenizer_rng(name)
    model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
    library = sentencepiece.SentencePieceProcessor(model_file=str(path))
    different = []
    with TokenizeCommand(path) as encoder, TokenizeCommand(path, "--decode") as decoder:
        for some in chunks(texts(rng, model)):
            expected = library.encode(some)
            answers = encoder.answers([{"text": text, "add_special_tokens": False} for text in some])
            different += [(text, want, answer) for text, want, answer in zip(some, expected, answers) if answer != {"ids": want}]
            lists = list(sequences(rng, model, expected))
            answers = decoder.answers([{"ids": ids, "skip_special_tokens": True} for ids in lists])
            for ids, answer in zip(lists, answers):
                want = library.decode(ids)
                if answer["text"] != want or "".join(answer["deltas"]) != want:
                    different.append((ids, want, answer))
    assert not different, f"{len(different)} differ: {different[:3]}"


def test_a_folder_does_as_transformers(trained, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(trained("bpe_long_spaces").read_bytes())
    special = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    tokens = {str(i): {"content": content, **special} for i, content in enumerate(["<unk>", "<s>", "</s>"])}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True, "add_eos_token": True, "bos_token": "<s>",
              "eos_token": "</s>", "unk_token": "<unk>", "added_tokens_decoder": tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    reference = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    lines = ["", "Hello world", " Hello", "<s>[INST] Hi [/INST] ok</s> more", "a</s>b </s> c", "  two  spaces ", "\u00e9\u4e2d\U0001f389", "\u2581x",
             "line\nnext</s>\nx", "<extra>the <unk> end"]
    with TokenizeCommand(tmp_path) as encoder, TokenizeCommand(tmp_path, "--decode") as decoder:
        for with_specials in (True, False):
            answers = encoder.answers([{"text": line, "add_special_tokens": with_specials} for line in lines])
            assert [answer["ids"] for answer in answers] == [reference.encode(line, add_special_tokens=with_specials) for line in lines]
        for skip in (True, False):
            lists = [reference.encode(line) for line in lines]
            answers = decoder.answers([{"ids": ids, "skip_special_tokens": skip} for ids in lists])
            assert [answer["text"] for answer in answers] == [reference.decode(ids, skip_special_tokens=skip) for ids in lists]
