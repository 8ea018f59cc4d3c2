"""The frozen cases of `needle.environments`, which the package cactus-needle brings along."""

from __future__ import annotations

import os
from collections.abc import Iterator

from needle_router.replay.cases import Example, SourceProblem


def environments(*, with_system: bool = True) -> Iterator[Example]:
    """Every case, named `environment/number`; its category is the kind of case. Raises SourceProblem."""
    # Read when the package is imported: it would report home.
    os.environ["NEEDLE_TELEMETRY"] = "0"
    try:
        import needle
        from needle.environments import ENVIRONMENTS
    except ImportError as error:
        raise SourceProblem(
            f"the package cactus-needle cannot be imported ({error}): pip install cactus-needle"
        ) from None
    for name, module in ENVIRONMENTS.items():
        declared = [getattr(tool, "_needle_tool", None) or needle.build_schema(tool) for tool in module.TOOLS]
        tools = [{key: tool[key] for key in ("name", "description", "parameters")} for tool in declared]
        system = module.SYSTEM if with_system else None
        for number, case in enumerate(module.TEST_CASES):
            yield Example(f"{name}/{number}", case["category"], case["query"], tools, case["calls"], system)
