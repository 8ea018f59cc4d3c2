"""Where the sentences come from: `narrow` for the model in the package, `broad` for the one in the tests.

A generator is a class with a seed and a split: `example(kind=None)` draws one example, `SPLITS` and `KINDS` are what it
knows. No sentence is from a data set.
"""

from training.generators import broad, narrow

GENERATORS = {"narrow": narrow.Generator, "broad": broad.Generator}
