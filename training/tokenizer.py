"""The tokenizer: SentencePiece BPE with Needle 2's special ids, trained on generated text.

The space is a piece of its own, so a word is cut the same way in the request and inside a JSON string: copying a word
is copying its pieces. Plain BPE pieces only: user-defined JSON pieces made needle-rs count tokens differently.
"""

import re

import sentencepiece
from needle.model.finetune import render_example
from needle.model.tokenizer import CHAT_MARKERS

SEED = 11
SPACE = "\u2581"
#: What every declaration and call repeats; kept whole in the training text, it becomes (nearly) one piece.
SKELETON = (
    '{"name":"',
    '","description":"',
    '","parameters":{"type":"object","properties":{"',
    '":{"type":"string',
    '":{"type":"integer',
    '":{"type":"number',
    '":{"type":"boolean',
    '"}},"required":["',
    '"]}},{"name":"',
    '","arguments":{"',
    '","arguments":{}}]',
    '","enum":["',
    '"}},{"name":"',
    '"},"',
    '"}}]',
)


def make_tokenizer(path, vocab_size, generator, examples=6000):
    """Train a tokenizer on text of `generator` (a class) and write it to `path`."""
    counts = runs(generator(SEED), examples)
    text = (run for run, count in counts.items() for _ in range(max(1, int(count**0.8))))
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=text,
        model_prefix=str(path.with_suffix("")),
        vocab_size=vocab_size,
        model_type="bpe",
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=[*CHAT_MARKERS, SPACE],
        max_sentencepiece_length=64,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        split_by_unicode_script=False,
        split_by_number=False,
        split_digits=True,
        character_coverage=1.0,
        hard_vocab_limit=True,
        num_threads=2,
        minloglevel=2,
    )
    path.with_suffix(".vocab").unlink(missing_ok=True)


def runs(generator, examples):
    """Run of letters, digits or punctuation -> how often it occurs in rendered examples."""
    units = "|".join(map(re.escape, (*CHAT_MARKERS, *sorted(SKELETON, key=len, reverse=True))))
    cut = re.compile(units + r"|[A-Za-z]+|[0-9]|[^A-Za-z0-9\s<>]+")
    counts = {}
    for _ in range(examples):
        prompt, target = render_example(generator.example())
        for run in cut.findall(prompt + " " + target):
            if run not in CHAT_MARKERS:
                counts[run] = counts.get(run, 0) + 1
    return counts
