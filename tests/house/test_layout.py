"""Where things stand: two source roots with one package each, and no module that nothing uses."""

import re
from pathlib import Path

import pytest
from tests.house.check_wheel import HEAVY, foreign_modules

import needle_policies
import needle_router

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"router": "needle_router", "policies": "needle_policies"}
BYPRODUCTS = ("__pycache__", "*.egg-info")
#: Modules that are started, not imported.
STARTED = {"needle_router.__main__"}


def sources():
    """Dotted name -> text of every module of ours."""
    return {
        ".".join(file.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__"): file.read_text("utf-8")
        for root, package in PACKAGES.items()
        for file in (ROOT / root / package).rglob("*.py")
    }


@pytest.mark.parametrize(("root", "package"), PACKAGES.items())
def test_a_source_root_holds_its_package_and_nothing_else(root, package):
    # A stray file would be importable in an editable install and missing from the wheel.
    strays = [path.name for path in (ROOT / root).iterdir() if not any(path.match(kind) for kind in BYPRODUCTS)]
    assert strays == [package]


@pytest.mark.parametrize("package", PACKAGES.values())
def test_each_package_is_marked_as_typed(package):
    root = next(root for root, name in PACKAGES.items() if name == package)
    assert (ROOT / root / package / "py.typed").is_file()


def test_the_router_exports_what_users_rely_on():
    assert sorted(needle_router.__all__) == ["NeedleRouter", "__version__", "create_app", "load_config"]
    assert all(getattr(needle_router, name) is not None for name in needle_router.__all__)
    assert dir(needle_router) == sorted(needle_router.__all__)


def test_an_unknown_name_of_the_router_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'NeedleRooter'"):
        _ = needle_router.NeedleRooter


def test_the_policies_export_their_public_names():
    public = {name for name in vars(needle_policies) if name[0].isupper()}
    assert public == set(needle_policies.__all__)


def test_the_policies_need_nothing_but_the_standard_library():
    assert foreign_modules("needle_policies", [str(ROOT / "policies")]) == set()


def test_every_policy_module_needs_nothing_but_the_standard_library():
    for name in sources():
        if name.startswith("needle_policies."):
            assert foreign_modules(name, [str(ROOT / "policies")]) == set(), name


def test_the_router_loads_nothing_heavy():
    found = foreign_modules("needle_router.app", [str(ROOT / root) for root in PACKAGES])
    assert found & (HEAVY | {"sentencepiece", "huggingface_hub", "needle", "needle_rs"}) == set()


def test_no_module_stands_unused():
    modules = sources()
    texts = {**modules, **{str(file): file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py")}}
    for name in modules.keys() - STARTED - set(PACKAGES.values()):
        parent, _, leaf = name.rpartition(".")
        used = re.compile(
            rf"\b{re.escape(name)}\b|from {re.escape(parent)} import (?:\([^)]*\b{leaf}\b|[^\n(]*\b{leaf}\b)"
        )
        assert any(used.search(text) for where, text in texts.items() if where != name), f"nothing uses {name}"
