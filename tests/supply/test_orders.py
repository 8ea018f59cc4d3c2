"""Model and platform -> names on the hub, and places on this machine."""

import pytest
from needle.agent import fetch

from needle_router.supply.faults import Unsupported
from needle_router.supply.orders import Item, Order, order_for, weights_for

V2, V3 = fetch.engine_version(2), fetch.engine_version(3)


def test_generation_2_is_one_wheel_with_the_weights_inside_its_library():
    assert order_for("needle-2", "manylinux2014_x86_64", fetch) == Order(
        "needle-2",
        2,
        "Cactus-Compute/needle2",
        (
            Item(
                f"python/cactus_needle-{V2}-py3-none-manylinux2014_x86_64.whl",
                f"v2/{V2}/libneedle.so",
                ("needle/libneedle2.so", "needle/libneedle.so"),
            ),
        ),
    )


def test_generation_3_is_a_wheel_and_weights_beside_the_library():
    order = order_for("needle-3", "musllinux_1_2_aarch64", fetch)
    assert order.repo == "Cactus-Compute/needle3"
    assert order.items == (
        Item(
            f"python/cactus_needle-{V3}-py3-none-musllinux_1_2_aarch64.whl",
            f"v3/{V3}/libneedle.so",
            ("needle/libneedle3.so", "needle/libneedle.so"),
        ),
        Item("needle3.cact", f"v3/{V3}/needle3.cact"),
    )


@pytest.mark.parametrize("generation, version", [(2, V2), (3, V3)])
def test_the_rust_backend_needs_the_weights_alone(generation, version):
    assert weights_for(f"needle-{generation}", fetch) == Order(
        f"needle-{generation}",
        generation,
        f"Cactus-Compute/needle{generation}",
        (Item(f"needle{generation}.cact", f"v{generation}/{version}/needle{generation}.cact"),),
    )


@pytest.mark.parametrize("tag, library", [("macosx_11_0_arm64", "libneedle.dylib"), ("win_amd64", "libneedle.dll")])
def test_the_library_is_named_as_its_system_names_libraries(tag, library):
    assert order_for("needle-2", tag, fetch).items[0].installed == f"v2/{V2}/{library}"


def test_what_is_not_on_the_hub_is_said():
    with pytest.raises(Unsupported, match="tiny is not on the hub; needle-2 and needle-3 are"):
        order_for("tiny", "win_amd64", fetch)
    with pytest.raises(Unsupported, match="tiny is not on the hub; needle-2 and needle-3 are"):
        weights_for("tiny", fetch)


@pytest.mark.parametrize("generation", [2, 3])
def test_the_places_are_those_where_the_native_backend_looks(generation, tmp_path):
    from needle_router.engine.native import find_files

    order = order_for(f"needle-{generation}", "manylinux2014_x86_64", fetch)
    root = tmp_path / ".cache" / "cactus-needle"
    for item in order.items:
        (root / item.installed).parent.mkdir(parents=True, exist_ok=True)
        (root / item.installed).write_bytes(b"")
    found = find_files(order.model, {"HOME": str(tmp_path)}, fetch)
    assert [found.library, found.base][: len(order.items)] == [root / item.installed for item in order.items]
