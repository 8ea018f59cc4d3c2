"""Machine -> the build of the engine that fits it."""

import sys

import pytest

from needle_router.supply.faults import Unsupported
from needle_router.supply.platforms import TAGS, libc_of, tag_for, tag_here


@pytest.mark.parametrize(
    "system, machine, libc, tag",
    [
        ("linux", "x86_64", "glibc", "manylinux2014_x86_64"),
        ("linux", "aarch64", "glibc", "manylinux2014_aarch64"),
        ("linux", "arm64", "glibc", "manylinux2014_aarch64"),
        ("linux", "x86_64", "musl", "musllinux_1_2_x86_64"),
        ("linux", "aarch64", "musl", "musllinux_1_2_aarch64"),
        ("darwin", "arm64", "", "macosx_11_0_arm64"),
        ("darwin", "x86_64", "", "macosx_11_0_x86_64"),
        ("win32", "AMD64", "", "win_amd64"),
        ("win32", "ARM64", "", "win_arm64"),
    ],
)
def test_every_published_platform_has_its_tag(system, machine, libc, tag):
    assert tag_for(system, machine, libc) == tag


@pytest.mark.parametrize(
    "system, machine, libc, named",
    [
        ("linux", "armv7l", "glibc", "linux armv7l glibc"),
        ("linux", "riscv64", "musl", "linux riscv64 musl"),
        ("linux", "i686", "glibc", "linux i686 glibc"),
        ("linux", "aarch64", "bionic", "linux aarch64 bionic"),
        ("freebsd14", "x86_64", "", "freebsd14 x86_64"),
        ("linux", "", "glibc", "linux unknown processor glibc"),
    ],
)
def test_any_other_machine_is_named_and_gets_no_foreign_build(system, machine, libc, named):
    with pytest.raises(Unsupported, match=rf"no engine is published for this machine \({named}\)"):
        tag_for(system, machine, libc)


def test_the_table_holds_the_tags_that_the_vendor_publishes():
    from needle.agent import fetch

    assert sorted(TAGS.values()) == sorted(fetch.WHEEL_TAGS)


def test_off_linux_there_is_no_c_library_to_tell():
    assert libc_of("darwin") == libc_of("win32") == ""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library counts on Linux")
def test_this_machine_gets_the_tag_that_the_vendor_s_package_would_take():
    from needle.agent import fetch

    assert libc_of("linux") in ("glibc", "musl")
    assert tag_here() == fetch._platform_tag()
