"""Configuration: one frozen value, made from a file, the environment and flags."""

from needle_router.config.checks import check
from needle_router.config.load import Loaded, load, load_config
from needle_router.config.schema import Config
from needle_router.config.show import redacted

__all__ = ["Config", "Loaded", "check", "load", "load_config", "redacted"]
