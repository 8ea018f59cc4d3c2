"""The surfaces package."""
