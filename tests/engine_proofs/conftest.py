"""The stand-in for the vendor's library, as the engine's own tests build it."""

from tests.engine.conftest import fake_libraries, native

__all__ = ["fake_libraries", "native"]
