"""From the bytes of one chat request to its answer: local, forwarded, merged, raced, or Needle alone.

`routing` is the entry: it carries out on an `exchange` what the pipeline decided. Every way of answering ends in one
record (`accounts`).
"""
