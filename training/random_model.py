"""A `.cact` file of Needle 2's full size with random weights: what its time and memory are, nobody has to download.

    pip install "cactus-needle[train]==2.0.15"
    python -m training.random_model --out needle-2-random.cact

The shape is that of the package's defaults with the published depth: 27 layers, width 512, 8 and 4 heads, a vocabulary
of 8,192, engrams at two layers, a window of 256 tokens with the tools kept, 2 and 4 bits. Nothing is trained and
nothing is fetched. The vocabulary is learned from words of this project's own generators, so a text has about as many
tokens as with the real one, not the same ones.

Noise writes words for ever. So that a decision comes to an end, the embeddings of eleven pieces are set by hand:
whatever it reads, the network writes one call, `set_fan` with the speed `high`, and stops. It does the full work to say
so.
"""

import argparse
import itertools
import random
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece
from needle.model.architecture import SimpleAttentionNetwork, TransformerConfig, effective_kv_window
from needle.model.export import write_export
from needle.model.tokenizer import CHAT_MARKERS, SANTokenizer
from training.generators import GENERATORS
from training.tokenizer import SPACE, runs

LAYERS = 27
WINDOW = 256
#: Most weights in 2 bits, those that every token needs in 4: about the published 14 MB.
BITS = "default=2,embedding=4"
SEED = 20261130
#: What follows the prompt, piece by piece. Each piece occurs once, so the last one alone tells the next.
ANSWER = (
    "<tool_call>",
    '[{"name":"',
    "set_fan",
    '","arguments":{"',
    "speed",
    '":"',
    "high",
    '"}}]',
    "</tool_call>",
    "<|im_end|>",
)
SYLLABLES = [a + b for a, b in itertools.product("bdfgklmnprstvz", "aeiou")]


def config():
    """The full shape."""
    return TransformerConfig(num_layers=LAYERS, kv_window=WINDOW, flash=False, remat=False, dtype="float32")


def random_params(shape, seed):
    """Noise in the shapes that the network would have, made without running it: (parameters, how many)."""
    model, ids = SimpleAttentionNetwork(shape), jnp.ones((1, 8), jnp.int32)
    methods = (None, model.forward_confidence, model.encode_contrastive)
    trees = [jax.eval_shape(lambda key, m=m: model.init(key, ids, method=m), jax.random.PRNGKey(0)) for m in methods]
    noise, count = np.random.default_rng(seed), 0

    def fill(path, leaf):
        nonlocal count
        count += leaf.size
        # Scales of norms are added to one, and a long row must not be a loud one.
        spread = 0.02 if len(leaf.shape) < 2 or "scale" in path else leaf.shape[-2] ** -0.5
        return (noise.standard_normal(leaf.shape) * spread).astype("f4")

    merged = {}
    for tree in trees:
        merged = {**tree["params"], **merged}
    merged = {name: leaf for name, leaf in merged.items() if not name.startswith("mtp_")}
    filled = jax.tree_util.tree_map_with_path(lambda path, leaf: fill(jax.tree_util.keystr(path), leaf), merged)
    return filled, count


def write_one_answer(params, tokenizer):
    """Make each piece of the answer call for the next one, through the embedding that reads and writes.

    Each pair of neighbours shares a dimension, stronger from pair to pair, so a piece is drawn to its successor rather
    than to its predecessor; a dimension of its own, negative at the output, keeps it from repeating itself.
    """
    chain = [tokenizer.encode("<|im_start|>assistant\n")[-1], *(tokenizer.sp.PieceToId(piece) for piece in ANSWER)]
    rows, norm = params["embedding"]["embedding"], params["stack"]["final_norm"]["scale"]
    pull = np.zeros(len(chain) + 1)
    pull[1:-1] = 4.0 + np.arange(len(chain) - 1)
    rows[:, : 2 * len(chain)] = 0
    for place, piece in enumerate(chain):
        rows[piece, place - 1 if place else 0] = pull[place] ** 0.5
        rows[piece, place] = pull[place + 1] ** 0.5
        rows[piece, len(chain) + place] = (pull[place] + pull[place + 1]) ** 0.5
    norm[: len(chain)], norm[len(chain) : 2 * len(chain)] = 0, -2


def make_vocabulary(path, size):
    """A SentencePiece model of exactly `size` pieces, from runs of the generators' examples and made-up words."""
    dice = random.Random(SEED)
    counts = runs(GENERATORS["broad"](SEED), 3000)
    words = ("".join(dice.choices(SYLLABLES, k=dice.randint(2, 4))) for _ in range(40_000))
    text = [run for run, count in counts.items() for _ in range(max(1, int(count**0.8)))] + list(words)
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(text),
        model_prefix=str(path.with_suffix("")),
        vocab_size=size,
        model_type="bpe",
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=[*CHAT_MARKERS, SPACE, *(piece for piece in ANSWER if piece not in CHAT_MARKERS)],
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        character_coverage=1.0,
        hard_vocab_limit=True,
        num_threads=1,
        minloglevel=2,
    )
    path.with_suffix(".vocab").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    shape, vocabulary = config(), args.out.with_suffix(".model")
    make_vocabulary(vocabulary, shape.vocab_size)
    params, count = random_params(shape, SEED)
    tokenizer, window = SANTokenizer(str(vocabulary)), effective_kv_window(shape)
    write_one_answer(params, tokenizer)
    written = write_export(params, shape, str(args.out), bits_map=BITS, tokenizer=tokenizer, kv_window=window)
    vocabulary.unlink()
    print(f"{args.out}: {count / 1e6:.1f} million parameters, {written['bytes'] / 1e6:.1f} MB, window {window}")


if __name__ == "__main__":
    main()
