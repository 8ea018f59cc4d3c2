"""`needle-router demo`: the whole product on one machine, without a key, a download or a network.

A small OpenAI-compatible upstream with canned words, a real router with the packaged demo model in front of it, and a
list of turns sent with the official `openai` client. The demo model knows five tools; it is not Needle's quality.
"""

from needle_router.cli.demo.run import demo

__all__ = ["demo"]
