"""The forward package."""
