"""Which build of the engine fits a machine: operating system, processor and C library -> the tag in a wheel's name."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from types import MappingProxyType

from needle_router.supply.faults import Unsupported

#: What `platform.machine()` says, in lower case -> the architecture of the engine's builds.
ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
)
#: (sys.platform, C library, architecture) -> tag. The C library counts on Linux alone.
TAGS: Mapping[tuple[str, str, str], str] = MappingProxyType(
    {
        ("linux", "glibc", "x86_64"): "manylinux2014_x86_64",
        ("linux", "glibc", "aarch64"): "manylinux2014_aarch64",
        ("linux", "musl", "x86_64"): "musllinux_1_2_x86_64",
        ("linux", "musl", "aarch64"): "musllinux_1_2_aarch64",
        ("darwin", "", "x86_64"): "macosx_11_0_x86_64",
        ("darwin", "", "aarch64"): "macosx_11_0_arm64",
        ("win32", "", "x86_64"): "win_amd64",
        ("win32", "", "aarch64"): "win_arm64",
    }
)


def tag_for(system: str, machine: str, libc: str) -> str:
    """The platform tag. Raises Unsupported where no engine is published.

    `system` is `sys.platform`, `machine` is `platform.machine()`, `libc` is glibc, musl or bionic, "" off Linux.
    """
    tag = TAGS.get((system, libc, ARCHITECTURES.get(machine.lower(), "")))
    if tag is None:
        named = " ".join(part for part in (system, machine or "unknown processor", libc) if part)
        raise Unsupported(
            f"no engine is published for this machine ({named}); build libneedle and name it in NEEDLE2_LIB_PATH or "
            'NEEDLE3_LIB_PATH, or use engine.backend = "rust" with a .cact file'
        )
    return tag


def tag_here() -> str:
    """The tag of the machine that this runs on."""
    return tag_for(sys.platform, platform.machine(), libc_of(sys.platform))


def libc_of(system: str) -> str:
    """The C library under this interpreter; "" off Linux."""
    if system != "linux":
        return ""
    if hasattr(sys, "getandroidapilevel"):
        return "bionic"
    # Asked of the library itself: `platform.libc_ver` searches the interpreter's file and finds glibc in musl builds.
    try:
        return "glibc" if (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc") else "musl"
    except (ValueError, OSError):
        return "musl"
