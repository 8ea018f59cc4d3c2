"""What is installed: the lock, the wheel, and the recipe of the image."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from tests.house.check_wheel import HEAVY, content_problems

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("runtime.txt", "dev.txt", "build.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
_PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)


def lock(name):
    return (ROOT / "requirements" / name).read_text("utf-8")


def pins(name):
    return dict(_PIN.findall(lock(name)))


def wanted(requirement):
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_its_version_and_hashes(name):
    blocks = [block for block in re.split(r"\n(?=\S)", lock(name)) if not block.startswith("#")]
    assert len(blocks) >= 5
    for block in blocks:
        assert _PIN.match(block), block
        assert "--hash=sha256:" in block, block


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_names_no_index_and_no_address(name):
    assert "://" not in lock(name)
    assert "--index-url" not in lock(name)


def test_the_runtime_lock_holds_every_dependency_of_the_package():
    needed = {wanted(line) for line in PROJECT["project"]["dependencies"]}
    assert needed - pins("runtime.txt").keys() == set()


def test_the_developer_lock_holds_the_runtime_lock_and_the_tools():
    tools = {wanted(line) for line in PROJECT["dependency-groups"]["dev"]}
    runtime, dev = pins("runtime.txt"), pins("dev.txt")
    assert tools - dev.keys() == set()
    assert {name: dev.get(name) for name in runtime} == runtime


def test_nothing_heavy_is_installed_with_the_router():
    assert pins("runtime.txt").keys() & (HEAVY - {"numpy"} | {"jaxlib", "flax", "optax", "triton"}) == set()


def test_the_wheel_holds_both_packages_and_the_demo_model_and_nothing_else(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (file,) = tmp_path.glob("needle_router-*.whl")
    with zipfile.ZipFile(file) as wheel:
        assert content_problems(wheel.namelist()) == []


def test_a_stray_module_in_a_wheel_is_a_problem():
    names = ["router/__init__.py", "needle_router/__main__.py"]
    assert content_problems(names)[0] == "a stray top-level entry: router"


@pytest.mark.parametrize(
    "target", ["demo", "test", "lint", "bench", "bench-check", "bench-extras", "format", "clean", "lock", "docs"]
)
def test_make_has_the_target(target):
    assert re.search(rf"^{target}:.*## \w", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("target", ["demo", "test", "lint", "bench", "bench-check"])
def test_the_target_does_its_own_set_up(target):
    assert re.search(rf"^{target}: \$\(READY\)", MAKEFILE, re.MULTILINE)


def test_the_image_runs_as_nobody_in_particular_and_is_watched():
    final = DOCKERFILE.rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/healthz", final, re.MULTILINE)
    assert re.search(r"^VOLUME /cache$", final, re.MULTILINE)
    assert final.rstrip().endswith('CMD ["needle-router", "serve"]')


def test_the_image_is_built_from_locks_only():
    installs = re.findall(r"pip install (.+?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert installs == [
        "--require-hashes -r requirements/runtime.txt",
        "--require-hashes -r requirements/build.txt",
        "--no-deps /dist/*.whl",
    ]


def test_the_build_context_holds_everything_that_the_image_copies():
    copied = {
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
        for source in line.split()
    }
    allowed = {
        line[1:].rstrip("/") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[:1] == "!"
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_the_version_has_one_home():
    from needle_router import __version__

    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
