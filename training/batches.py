"""Padded batches from a generator, made in the background, one shape per length bucket."""

import queue
import random
import threading

import numpy as np
from needle.model.finetune import render_example
from needle.model.tokenizer import BOS_ID, EOS_ID
from training.generators.mistakes import corrupt

END_OF_TURN = "<|im_end|>"
AHEAD = 6
#: Of the wrong answers: those that the model itself gave, once there are any.
FROM_POOL = 0.6


class Batches:
    """`queue` holds (ids, loss mask, scored part, right?) arrays. `wrong_rate` and `pool` are set from outside."""

    def __init__(self, tokenizer, generator, *, buckets, tokens, seed):
        self.tokenizer, self.buckets, self.tokens = tokenizer, buckets, tokens
        self.generator, self.r = generator(seed), random.Random(seed + 1)
        self.wrong_rate, self.max_len, self.pool = 0.0, max(buckets), []
        self.queue = queue.Queue(maxsize=AHEAD)
        threading.Thread(target=self._produce, daemon=True).start()

    def row(self):
        """(ids, start of the call loss or None, end of the scored part, right?)."""
        example, right, completion = self.generator.example(), True, None
        if self.r.random() < self.wrong_rate:
            if self.pool and self.r.random() < FROM_POOL:
                example, completion, right = self.r.choice(self.pool)
            else:
                wrong = corrupt(self.r, example)
                right = wrong == example["answers"]
                completion = render_example({**example, "answers": wrong})[1]
        prompt, target = render_example(example)
        head = [BOS_ID, *self.tokenizer.encode(prompt)]
        if completion is None:
            body = self.tokenizer.encode(target)
            return [*head, *body, EOS_ID], len(head), len(head) + len(body) - 1, True
        body = self.tokenizer.encode(completion.replace(END_OF_TURN, ""))
        return head + body, None, len(head) + len(body), right

    def _produce(self):
        waiting = {bucket: [] for bucket in self.buckets}
        while True:
            row = self.row()
            bucket = next((bucket for bucket in self.buckets if len(row[0]) <= bucket), None)
            if bucket is None or bucket > self.max_len:
                continue
            waiting[bucket].append(row)
            if len(waiting[bucket]) == max(4, self.tokens // bucket):
                self.queue.put(padded(waiting[bucket], bucket))
                waiting[bucket] = []


def padded(rows, length):
    """Rows as arrays of `length` columns."""
    ids = np.zeros((len(rows), length), np.int32)
    loss, keep = np.zeros((2, len(rows), length), np.float32)
    right = np.zeros(len(rows), np.float32)
    for i, (row, start, end, is_right) in enumerate(rows):
        ids[i, : len(row)] = row
        keep[i, :end] = 1
        right[i] = is_right
        if start is not None:
            loss[i, start : len(row)] = 1
    return ids, loss, keep, right
