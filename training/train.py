"""Train a small network of Needle 2's architecture on generated sentences, and export it as a `.cact` file.

    python -m training.train --generator narrow     # the demo model in the package, about 16 minutes on two cores
    python -m training.train --generator broad      # the one for evidence tests, an hour and more

1. A tokenizer is trained on generated text, or loaded if there is one.
2. To `--joint-at` of the run: loss on the call only.
3. From there: the same loss with weights as they are after export (4 bits, gradient passed straight through), plus
   the confidence head on prompt and call, with its gradient into the trunk (a head on a frozen trunk learned nothing).
   Right calls are the expected answers; wrong ones are corrupted answers and the model's own mistakes, collected from
   snapshots that needle-rs runs on fresh examples.
4. The confidence is rescaled on fresh outputs of the exported file, and the file is written again.

The learning rate warms up, then follows a cosine to the end. A run lasts `--steps`, or `--minutes` of wall time.

Needs: pip install "cactus-needle[train]==2.0.15" needle-rs==0.3.1
"""

import argparse
import math
import pathlib
import pickle
import time

import jax
import numpy as np
from needle.model.architecture import SimpleAttentionNetwork, TransformerConfig
from needle.model.tokenizer import SANTokenizer
from training.batches import Batches
from training.feedback import calibrate, collect, export
from training.generators import GENERATORS
from training.network import init_params, make_config, make_step
from training.tokenizer import make_tokenizer
from training.weights import read_weights

WORK = pathlib.Path(__file__).resolve().parent / "work"
#: How each model was made, where that differs from the defaults.
RECIPES = {
    "narrow": {"layers": 2, "vocab": 512, "steps": 1390, "joint_at": 0.604},
    "broad": {"layers": 5, "vocab": 960, "steps": 0, "joint_at": 0.74},
}
SNAPSHOT_SEED, CALIBRATION_SEED = 5_000_000, 9_000_000
POOL_LIMIT = 6000
CHECKPOINT_EVERY_S = 120
LOG_EVERY = 50


class Run:
    """One training run: where it stands and what it has learnt."""

    def __init__(self, args):
        self.args, self.generator = args, GENERATORS[args.generator]
        self.tokenizer = SANTokenizer(str(args.tokenizer))
        self.config = make_config(args, self.tokenizer.vocab_size)
        self.model = SimpleAttentionNetwork(self.config)
        self.params = start(args, self.model)
        self.batches = Batches(self.tokenizer, self.generator, buckets=args.buckets, tokens=args.tokens, seed=args.seed)
        optimizer, self.step = make_step(self.model, joint=False)
        self.state = optimizer.init(self.params)
        self.joint, self.steps, self.collected, self.log = False, 0, 0, []
        self.started = self.saved = time.time()
        self.marks = [args.joint_at + 0.02 + (1 - args.joint_at) * part for part in (0, 0.33, 0.66)]

    def progress(self):
        """The part of the run that is done, 0 to 1."""
        if self.args.steps:
            return self.steps / self.args.steps
        return (time.time() - self.started) / (60 * self.args.minutes)

    def train(self):
        """All steps."""
        while (progress := self.progress()) < 1:
            self.enter(progress)
            warm = min(1.0, (self.steps + 1) / (40 if self.args.resume else 100))
            rate = self.args.lr * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
            self.params, self.state, seen = self.step(self.params, self.state, rate, *self.batches.queue.get())
            self.steps += 1
            self.log.append([float(value) for value in seen])
            if self.steps % LOG_EVERY == 0:
                self.report(progress, rate)
            if time.time() - self.saved > CHECKPOINT_EVERY_S:
                self.save()

    def enter(self, progress):
        """What changes at this part of the run: lengths, phase, snapshots."""
        short = progress < self.args.short_until
        self.batches.max_len = min(self.args.buckets) if short else max(self.args.buckets)
        if not self.joint and progress >= self.args.joint_at:
            self.joint, self.batches.wrong_rate = True, self.args.wrong_rate
            _, self.step = make_step(self.model, joint=True)
        if self.collected < len(self.marks) and progress >= self.marks[self.collected]:
            self.snapshot()

    def snapshot(self):
        """Export, let the model answer, and train its confidence on what it said."""
        path = self.args.work / "snapshot.cact"
        export(self.params, self.config, self.tokenizer, path)
        seed = SNAPSHOT_SEED + self.args.seed + 1000 * self.collected
        pool, exact = collect(path, self.generator, seed=seed, count=self.args.collect)
        self.batches.pool = (self.batches.pool + pool)[-POOL_LIMIT:]
        self.collected += 1
        print(f"snapshot {self.collected}: greedy exact {exact:.3f}, pool {len(self.batches.pool)}", flush=True)

    def report(self, progress, rate):
        """One line of means."""
        call, confidence, hits = np.mean(self.log[-LOG_EVERY:], axis=0)
        print(
            f"{self.steps} {progress:.3f} lr {rate:.5f} call {call:.4f} confidence {confidence:.3f} hits {hits:.3f} "
            f"{time.time() - self.started:.0f}s",
            flush=True,
        )

    def save(self):
        """Write a checkpoint; whoever reads it sees a whole one."""
        path = self.args.work / "checkpoint.pkl"
        data = {"params": jax.tree_util.tree_map(np.asarray, self.params), "config": dict(vars(self.config))}
        path.with_suffix(".tmp").write_bytes(pickle.dumps(data))
        path.with_suffix(".tmp").replace(path)
        self.saved = time.time()


def start(args, model):
    """Fresh weights, or those of the checkpoint or `.cact` file to go on from."""
    if args.resume is None:
        return init_params(model, args.seed)
    if args.resume.suffix == ".cact":
        return read_weights(args.resume, init_params(model, args.seed))
    return pickle.loads(args.resume.read_bytes())["params"]


def finish(params, config, tokenizer, args):
    """Export, rescale the confidence on what the file says, and export again."""
    export(params, config, tokenizer, args.out)
    generator = GENERATORS[args.generator]
    params, (scale, bias) = calibrate(args.out, params, generator, seed=CALIBRATION_SEED, count=args.calibrate)
    export(params, config, tokenizer, args.out)
    print(f"confidence scale {scale:.3f}, bias {bias:.3f}; {args.out} {args.out.stat().st_size} bytes", flush=True)


def arguments():
    """The command line, with the generator's recipe as defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", choices=sorted(GENERATORS), required=True)
    parser.add_argument("--out", type=pathlib.Path, help="the model; default: work/GENERATOR-needle.cact")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="read or made; default: beside the model, .model")
    parser.add_argument("--work", type=pathlib.Path, default=WORK, help="checkpoints, snapshots, compile cache")
    parser.add_argument("--resume", type=pathlib.Path, help="start from the weights of a checkpoint or a .cact file")
    parser.add_argument("--export-only", action="store_true", help="export --resume (or the last checkpoint) and stop")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int, help="run length in steps instead of minutes")
    parser.add_argument("--vocab", type=int)
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--tokens", type=int, default=3072, help="padded tokens a batch")
    parser.add_argument("--buckets", type=int, nargs="+", default=[112, 160, 240])
    parser.add_argument("--short-until", type=float, default=0.08, help="only the shortest bucket until here")
    parser.add_argument("--joint-at", type=float, help="the confidence head joins at this part of the run")
    parser.add_argument("--wrong-rate", type=float, default=0.36, help="joint examples that only train confidence")
    parser.add_argument("--collect", type=int, default=1200, help="answers collected per snapshot")
    parser.add_argument("--calibrate", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for name, value in RECIPES[args.generator].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.out = args.out or args.work / f"{args.generator}-needle.cact"
    args.tokenizer = args.tokenizer or args.out.with_suffix(".model")
    return args


def main():
    """Train and finish, or only finish."""
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(args.work / "jit"))
    if args.export_only:
        checkpoint = pickle.loads((args.resume or args.work / "checkpoint.pkl").read_bytes())
        config = TransformerConfig(**checkpoint["config"])
        return finish(checkpoint["params"], config, SANTokenizer(str(args.tokenizer)), args)
    if not args.tokenizer.exists():
        make_tokenizer(args.tokenizer, args.vocab, GENERATORS[args.generator])
    run = Run(args)
    size = sum(array.size for array in jax.tree_util.tree_leaves(run.params))
    print(f"{size} parameters, {run.tokenizer.vocab_size} pieces", flush=True)
    run.train()
    run.save()
    return finish(run.params, run.config, run.tokenizer, args)


if __name__ == "__main__":
    main()
