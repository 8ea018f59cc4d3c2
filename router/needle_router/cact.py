"""What a `.cact` archive says about itself: its generation, its window, and the tokenizer that it carries.

An archive is a header, a codebook, a directory of tensors and their bytes; the SentencePiece vocabulary is the one
tensor of type RAW, in a form of its own. Only header, directory and vocabulary are read, never the weights. From the
vocabulary a SentencePiece model is put together by hand: a protocol buffer of pieces, their scores and kinds, and the
few settings that make the encoder behave as the one that trained the network (BPE, bytes for what is unknown, text as
it stands).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a generation's header ends, in bytes, and which of its 32-bit words is the window in tokens."""

    generation: int
    header_bytes: int
    window_word: int


#: By the tag in the first four bytes. Word 1 counts the tensors, word 2 the 32-bit floats of the codebook.
LAYOUTS = {0x05E12A83: Layout(2, 30 * 4, 11), 0x05E12A84: Layout(3, 49 * 4, 13)}
#: One row of the directory: type, dimensions, padding, four sizes, offset, length, group, bits.
ROW = struct.Struct("<BBHIIIIQQII")
RAW = 4
#: The vocabulary: pieces; ids of pad, eos, bos and unknown, -1 for none; dummy prefix, byte fallback; then its rows.
VOCABULARY = struct.Struct("<IiiiiBBH")
PIECE = struct.Struct("<fBH")
#: Limits that no real archive comes near; a damaged one must not cost memory.
MAX_TENSORS, MAX_CODEBOOK, MAX_VOCABULARY_BYTES = 100_000, 1_000_000, 64 * 1024 * 1024
#: The archive's kinds of pieces in order (normal, unknown, control, user-defined, byte) as SentencePiece numbers them.
SENTENCEPIECE_KINDS = (1, 2, 3, 4, 6)


class BadArchive(ValueError):
    """The file is no `.cact` archive, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; `kind` is SentencePiece's number."""

    text: bytes
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A SentencePiece BPE vocabulary. The pieces stand in the order of their ids."""

    pieces: tuple[Piece, ...]
    pad_id: int
    eos_id: int
    bos_id: int
    unknown_id: int
    dummy_prefix: bool
    byte_fallback: bool


@dataclass(frozen=True, slots=True)
class Archive:
    """`window` is the number of tokens, prompt and answer together, that the network holds."""

    generation: int
    window: int
    vocabulary: Vocabulary | None


def read_archive(path: Path) -> Archive:
    """Read what the archive says about itself. Raises BadArchive and OSError."""
    with path.open("rb") as file:
        try:
            return _archive(file)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise BadArchive(f"{path.name} is damaged: {error}") from error


def _archive(file: BinaryIO) -> Archive:
    tag, tensors, floats = struct.unpack("<3I", file.read(12))
    layout = LAYOUTS.get(tag)
    if layout is None:
        raise BadArchive(f"the file is not a .cact archive (tag 0x{tag:08x})")
    if tensors > MAX_TENSORS or floats > MAX_CODEBOOK:
        raise BadArchive(f"the header counts {tensors} tensors and {floats} codebook entries")
    file.seek(layout.window_word * 4)
    (window,) = struct.unpack("<I", file.read(4))
    file.seek(layout.header_bytes + floats * 4)
    directory = file.read(tensors * ROW.size)
    place = next((row[7:9] for row in ROW.iter_unpack(directory) if row[0] == RAW), None)
    return Archive(layout.generation, window, None if place is None else _vocabulary(_blob(file, *place)))


def _blob(file: BinaryIO, offset: int, length: int) -> bytes:
    if length > MAX_VOCABULARY_BYTES:
        raise BadArchive(f"the vocabulary has {length} bytes, the limit is {MAX_VOCABULARY_BYTES}")
    if file.seek(0, 2) < offset + length:
        raise BadArchive("the file ends before its vocabulary does")
    file.seek(offset)
    return file.read(length)


def _vocabulary(blob: bytes) -> Vocabulary:
    count, pad, eos, bos, unknown, dummy, fallback, _ = VOCABULARY.unpack_from(blob, 0)
    if not (0 <= unknown < count and all(-1 <= one < count for one in (pad, eos, bos))):
        raise BadArchive(f"the ids {pad}, {eos}, {bos}, {unknown} do not fit a vocabulary of {count} pieces")
    return Vocabulary(tuple(_pieces(blob, count)), pad, eos, bos, unknown, bool(dummy), bool(fallback))


def _pieces(blob: bytes, count: int) -> Iterator[Piece]:
    offset = VOCABULARY.size
    for _ in range(count):
        score, kind, length = PIECE.unpack_from(blob, offset)
        offset += PIECE.size
        yield Piece(blob[offset : offset + length], score, SENTENCEPIECE_KINDS[kind])
        offset += length


# ------------------------------------------------------------------ SentencePiece


def sentencepiece_model(vocabulary: Vocabulary) -> bytes:
    """The vocabulary as a serialised `sentencepiece.ModelProto` (sentencepiece_model.proto; numbers are its fields)."""
    pieces = b"".join(_message(1, _piece(piece)) for piece in vocabulary.pieces)
    return pieces + _message(2, _trainer(vocabulary)) + _message(3, _normalizer(vocabulary))


def _piece(piece: Piece) -> bytes:
    return _message(1, piece.text) + _key(2, 5) + struct.pack("<f", piece.score) + _number(3, piece.kind)


def _trainer(vocabulary: Vocabulary) -> bytes:
    numbers = {
        3: 2,  # model_type: BPE
        4: len(vocabulary.pieces),
        35: vocabulary.byte_fallback,
        40: vocabulary.unknown_id,
        41: vocabulary.bos_id,
        42: vocabulary.eos_id,
        43: vocabulary.pad_id,
    }
    names = {45: vocabulary.unknown_id, 46: vocabulary.bos_id, 47: vocabulary.eos_id, 48: vocabulary.pad_id}
    return b"".join(_number(field, value) for field, value in numbers.items()) + b"".join(
        _message(field, vocabulary.pieces[piece].text) for field, piece in names.items() if piece >= 0
    )


def _normalizer(vocabulary: Vocabulary) -> bytes:
    # 1 name, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces. No character map: text as it stands.
    return _message(1, b"identity") + _number(3, vocabulary.dummy_prefix) + _number(4, 0) + _number(5, 1)


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value)


def _message(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF  # negative numbers take ten bytes
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*groups, value))
