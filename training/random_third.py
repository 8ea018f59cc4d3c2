"""A small `.cact` file of generation 3 with random weights, for the tests of whatever reads such files.

    pip install "cactus-needle[train]==3.2.8"
    python -m training.random_third --out tests/native/needle3-random.cact

Its container, its prompt and its way through needle-rs are those of Needle 3; its size and its answers are not. It
carries the vocabulary of the demo model.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from needle.model.architecture import SimpleAttentionNetwork, TransformerConfig
from needle.model.export import write_export
from needle.model.tokenizer import SANTokenizer

DEMO = Path(__file__).parent.parent / "router" / "needle_router" / "models" / "tiny-needle.cact"
SEED = 20261130
WINDOW = 512


def config(vocabulary):
    """The smallest shape that has every part: two layers, one of them with an engram and global attention."""
    return TransformerConfig(
        vocab_size=vocabulary,
        d_model=128,
        num_heads=2,
        num_kv_heads=1,
        num_layers=2,
        qk_head_dim=32,
        v_head_dim=32,
        max_seq_len=WINDOW,
        engram_slots=16,
        engram_layers=(1,),
        global_layers=(1,),
        sliding_window=128,
        mhc_lanes=2,
        flash=False,
        remat=False,
        dtype="float32",
    )


def random_params(shape):
    """Noise in the shapes of the network, the confidence head's included."""
    model, ids = SimpleAttentionNetwork(shape), jnp.ones((1, 8), jnp.int32)
    methods = (None, model.forward_confidence)
    trees = [jax.eval_shape(lambda key, m=m: model.init(key, ids, method=m), jax.random.PRNGKey(0)) for m in methods]
    leaves = {name: leaf for tree in trees for name, leaf in tree["params"].items() if not name.startswith("mtp_")}
    noise = np.random.default_rng(SEED)
    return jax.tree_util.tree_map(lambda leaf: (noise.standard_normal(leaf.shape) * 0.05).astype("f4"), leaves)


def demo_tokenizer(folder):
    """The demo model's vocabulary as the vendor's package takes it."""
    from needle_router.cact import read_archive, sentencepiece_model

    path = Path(folder) / "demo.model"
    path.write_bytes(sentencepiece_model(read_archive(DEMO).vocabulary))
    return SANTokenizer(str(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = demo_tokenizer(folder)
        shape = config(tokenizer.vocab_size)
        written = write_export(random_params(shape), shape, str(args.out), tokenizer=tokenizer)
    print(f"{args.out}: {written['bytes']} bytes, {written['tensors']} tensors")


if __name__ == "__main__":
    main()
