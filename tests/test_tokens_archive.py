"""The tokenizer that an archive carries counts like the one it was made from."""

import struct
from pathlib import Path

import pytest

from needle_router.cact import read_archive, sentencepiece_model
from needle_router.models import tiny_needle_path
from needle_router.tokens import counter_for, window_of

HEADERS = [pytest.param(0x05E12A83, 120, id="generation 2"), pytest.param(0x05E12A84, 196, id="generation 3")]
KINDS = {"normal": 0, "unknown": 1, "control": 2, "user": 3, "byte": 4}


def vocabulary(processor, marker):
    """The pieces of a SentencePiece model as an archive writes them."""
    out = struct.pack("<IIIIIBBH", processor.get_piece_size(), 0, 1, 2, 3, 1, 1, 0)
    for number in range(processor.get_piece_size()):
        piece = processor.id_to_piece(number)
        kind = (
            "control"
            if processor.is_control(number)
            else "unknown"
            if processor.is_unknown(number)
            else "byte"
            if processor.is_byte(number)
            else "user"
            if piece == marker
            else "normal"
        )
        surface = piece.encode()
        out += struct.pack("<fBH", processor.get_score(number), KINDS[kind], len(surface)) + surface
    return out


def archive(tag, header_bytes, blob):
    """An archive of one tensor that is of no interest, and a vocabulary."""
    start = header_bytes + 4 * 28
    ends = start + 2 * 44
    header = struct.pack("<III", tag, 2, 28).ljust(start, b"\0")
    return (
        header
        + struct.pack("<BBHIIIIQQII", 3, 2, 0, 1, 8, 0, 0, ends, 8, 128, 4)
        + struct.pack("<BBHIIIIQQII", 4, 0, 0, 0, 0, 0, 0, ends + 8, len(blob), 0, 0)
        + b"\0" * 8
        + blob
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    import sentencepiece

    prefix = tmp_path_factory.mktemp("tokenizer") / "own"
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(["turn on the kitchen lights", "set a timer for five minutes"] * 20),
        model_prefix=str(prefix),
        vocab_size=320,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=["<tools>"],
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


@pytest.mark.parametrize(("tag", "header_bytes"), HEADERS)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("set a timer for five minutes", id="plain"),
        pytest.param("  two  spaces \t and\n lines ", id="spaces kept"),
        pytest.param("Zürich 東京 🙂", id="bytes of what is not in the vocabulary"),
        pytest.param("<tools>turn on</tools>", id="a marker"),
        pytest.param("", id="nothing"),
    ],
)
def test_the_archived_tokenizer_splits_like_its_original(original, tmp_path, tag, header_bytes, text):
    import sentencepiece

    path = tmp_path / "model.cact"
    path.write_bytes(archive(tag, header_bytes, vocabulary(original, "<tools>")))
    again = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(read_archive(path).vocabulary))
    assert again.encode(text, out_type=str) == original.encode(text, out_type=str)
    counter = counter_for(path)
    assert counter.exact
    assert counter.count(text) == len(original.encode(text))


def test_the_model_in_the_package_is_counted_exactly():
    counter = counter_for(tiny_needle_path())
    assert counter.exact
    assert counter.count("<tool_call>") <= 2
    assert window_of(tiny_needle_path()) == 1024


def test_the_parts_of_a_prompt_add_up_to_the_whole(original, tmp_path):
    path = tmp_path / "model.cact"
    path.write_bytes(archive(0x05E12A83, 120, vocabulary(original, "<tools>")))
    whole = '<tools>["a"]</tools>\nturn on<|im_end|>\n<|im_start|>assistant\n'
    tokens = original.encode("<|im_start|>user\n" + whole)
    assert abs(counter_for(path).prompt("", '["a"]', ("turn on",)) - (len(tokens) + 1)) <= 1


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not an archive at all", id="another kind of file"),
        pytest.param(struct.pack("<III", 0x05E12A83, 5, 28), id="cut in the header"),
        pytest.param(archive(0x05E12A83, 120, b"\xff" * 40), id="a vocabulary that makes no sense"),
        pytest.param(archive(0x05E12A83, 120, struct.pack("<IIIIIBBH", 9, 0, 1, 2, 3, 1, 1, 0)), id="cut in the list"),
        pytest.param(archive(0x05E12A83, 120, struct.pack("<IIIIIBBH", 0, 0, 1, 2, 3, 1, 1, 0)), id="no pieces"),
    ],
)
def test_an_archive_without_a_readable_tokenizer_leaves_the_estimate(tmp_path, data):
    path = tmp_path / "model.cact"
    path.write_bytes(data)
    counter = counter_for(path)
    assert not counter.exact
    assert counter.count("abcd") == 2
    assert counter.prompt("", "[]", ("turn on",)) > 0


def test_a_file_that_is_no_archive_has_no_window(tmp_path):
    path = tmp_path / "model.cact"
    path.write_bytes(b"short")
    assert window_of(path) is None
    assert window_of(tmp_path / "absent.cact") is None
    assert window_of(None) is None


def test_a_window_of_nothing_says_nothing(tmp_path):
    raw = bytearray(tiny_needle_path().read_bytes())
    # Word 11 of a generation 2 header.
    raw[44:48] = struct.pack("<I", 0)
    path = tmp_path / "silent.cact"
    path.write_bytes(raw)
    assert read_archive(path).window == 0
    assert window_of(path) is None


RANDOM_3 = Path(__file__).parent / "native" / "needle3-random.cact"


@pytest.mark.parametrize("facts", ["", "date: 2026-11-30 Mon"])
@pytest.mark.parametrize("text", ["turn on the kitchen lights", "hi", "Gr\u00fc\u00dfe \U0001f642 12:30", "a  b"])
def test_a_prompt_of_generation_3_is_counted_as_needle_rs_reads_it(facts, text):
    import needle_rs

    # Compact, as the router writes it and as needle-rs reads it.
    tools = '[{"name":"set_lights","description":"Switch them","parameters":{"type":"object"}}]'
    read = needle_rs.V3Engine.load(str(RANDOM_3)).generate(text, tools, max_new_tokens=2, system=facts or None)
    counter = counter_for(RANDOM_3)
    assert counter.exact
    assert counter.prompt(facts, tools, [text]) == read["positions"] - len(read["token_ids"])


def test_the_window_of_generation_3_is_that_of_needle_rs():
    import needle_rs

    assert window_of(RANDOM_3) == needle_rs.V3Engine.load(str(RANDOM_3)).max_seq_len == 512
