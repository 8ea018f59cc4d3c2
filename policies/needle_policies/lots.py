"""Drawing lots without chance: the same conversation always gets the same lot, on every replica and after a restart."""

from __future__ import annotations

import hashlib


def lot(purpose: str, conversation: str) -> float:
    """A number from 0 up to but not including 1, evenly spread; two purposes draw independently of each other."""
    digest = hashlib.sha256(f"{purpose}\0{conversation}".encode("utf-8", "surrogatepass")).digest()
    # 53 bits are what a float holds exactly; one more could round up to 1.
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)
