"""`python -m needle_router` is the `needle-router` command."""

import sys

from needle_router.cli import main

if __name__ == "__main__":
    sys.exit(main())
