"""Compares `fairlead tokenize` with the reference library on one tokenizer.json."""

from fairlead.tokenizer_texts import TokenizeCommand, chunks, meant_text, prose, string_count, text_line

SHOWN = 8


class Differences(list):
    """What differs, as lines; `check` fails with the first few."""

    def check(self):
        assert not self, f"{len(self)} differences, of which the first:\n" + "\n".join(self[:SHOWN])


def reference_ids(reference, texts, add_special_tokens):
    """Per text its ids; "error" where the library has none; None where it panics, as at overlapping added tokens."""
    try:
        return [e.ids for e in reference.encode_batch(texts, add_special_tokens=add_special_tokens)]
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        if len(texts) > 1:
            return [ids for text in texts for ids in reference_ids(reference, [text], add_special_tokens)]
        return ["error" if isinstance(error, Exception) else None]


def compare_ids(model, reference, texts, add_special_tokens=True):
    """Encodes texts (str or bytes) by both; returns the differences and how many texts were compared."""
    found, compared = Differences(), 0
    with TokenizeCommand(model) as command:
        for some in chunks(texts):
            lines = [text_line(text, add_special_tokens=add_special_tokens) for text in some]
            meant = [meant_text(line) for line in lines]
            known = iter(reference_ids(reference, [text for text in meant if text is not None], add_special_tokens))
            for line, text, answer in zip(lines, meant, command.answers(lines)):
                ids = "error" if text is None else next(known)
                if ids is None:
                    continue
                compared += 1
                if answer.get("ids", "error") != ids:
                    tokens = ids if ids == "error" else [reference.id_to_token(i) for i in ids]
                    found.append(f"{line[:400]!r}: {answer if len(ids) < 200 else '(long)'} instead of {ids[:200]} {ascii(tokens[:200])}")
    return found, compared


def matches_but_for_bytes(shown, reference, whole=False):
    """Whether a text equals another, or its beginning, in which each byte of some characters is a U+FFFD."""
    at = 0
    for character in shown:
        size = len(character.encode())
        if reference[at : at + 1] == character:
            at += 1
        elif reference[at : at + size] == "\ufffd" * size:
            at += size
        else:
            return False
    return at == len(reference) or not whole


def same_but_for_bytes(joined, text):
    """The same for whole texts; a Strip may have taken the space of a byte token from what a stream shows."""
    return any(matches_but_for_bytes(start + joined, text, whole=True) for start in ("", " "))


def goes_on(before, joined, whole):
    """Whether a stream's text makes `whole` of what the prompt shows, of which it may complete the last character. Where
    the whole text shows the prompt otherwise than the prompt alone, nothing can be said."""
    if not whole.startswith(before.rstrip("\ufffd")):
        return True
    head = whole[: len(whole) - len(joined)]
    return head + joined == whole and before.startswith(head) and not before[len(head) :].strip("\ufffd")


def reference_text(reference, ids, skip_special_tokens):
    """The text of ids; None where the library panics (Strip does on short tokens)."""
    try:
        return reference.decode(ids, skip_special_tokens=skip_special_tokens)
    except BaseException as error:
        if isinstance(error, Exception) or "Panic" in type(error).__name__:
            return None
        raise


def decode_sequences(reference, rng, texts):
    """An endless supply of ids: of texts cut at every token, random ones, unknown ones and ones of single characters."""
    size = max(reference.get_vocab(with_added_tokens=True).values()) + 1
    short = [i for i in range(size) if (t := reference.id_to_token(i)) and (len(t) == 1 or t.startswith("<0x"))] or [0]
    lines = [line for line in prose() if line]
    while True:
        text = rng.choice(lines)[:80] if rng.random() < 0.6 else next(texts)
        ids = (reference_ids(reference, [text], rng.random() < 0.5) or [None])[0]
        if isinstance(ids, list) and ids:
            ids = ids[:40]
            yield from ((ids[:cut], ids[cut:]) for cut in range(len(ids)))
            yield from ((ids[:0], ids[:cut]) for cut in range(1, len(ids) + 1))
            yield ids[:0], rng.sample(ids, len(ids))
        for _ in range(20):
            yield [], [rng.randrange(size + 8) for _ in range(rng.randint(1, 24))]
            yield [], [rng.choice(short) for _ in range(rng.randint(1, 16))]


def compare_texts(model, reference, sequences, rng, keeps_characters):
    """Decodes (prompt, ids) at once and as a stream. `keeps_characters`: the tokenizer has byte tokens, of which a stream
    shows the characters where the reference, which sees them together with broken ones, shows none."""
    found, compared = Differences(), 0
    with TokenizeCommand(model, "--decode") as command:
        for some in chunks(sequences):
            skip = rng.random() < 0.5
            requests = [{"prompt_ids": prompt, "ids": ids, "skip_special_tokens": skip} for prompt, ids in some]
            for (prompt, ids), answer in zip(some, command.answers(requests)):
                text = reference_text(reference, ids, skip)
                whole = reference_text(reference, prompt + ids, skip)
                before = reference_text(reference, prompt, skip)
                if text is None or whole is None or before is None:
                    continue
                compared += 1
                deltas = answer["deltas"]
                joined = "".join(deltas)
                if answer["text"] != text:
                    found.append(f"{ids}, skip {skip}: {answer['text']!a} instead of {text!a}")
                elif len(deltas) != len(ids) + 1:
                    found.append(f"{ids}: {len(deltas)} deltas")
                elif not prompt and joined != text and not (keeps_characters and same_but_for_bytes(joined, text)):
                    found.append(f"{ids}, skip {skip}: deltas {deltas!a} instead of {text!a}")
                elif prompt and not goes_on(before, joined, whole) and not (keeps_characters and "\ufffd" in before + whole):
                    found.append(f"{ids} behind {prompt}, skip {skip}: deltas {deltas!a} behind {before!a} instead of {whole!a}")
    return found, compared


def enough(compared, count):
    """Fails when so many texts made the reference panic that little was compared."""
    assert compared >= count * 0.8, f"compared {compared} of {count}"
