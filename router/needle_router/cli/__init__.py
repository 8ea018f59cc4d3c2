"""The `needle-router` command. `main` turns every expected failure into one exit code and plain lines on stderr.

0 ok · 1 a check failed, or a runtime error · 2 usage or configuration · 3 port in use · 4 engine or model missing
"""

from needle_router.cli.exits import main

__all__ = ["main"]
