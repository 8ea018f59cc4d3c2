"""Why a file could not be had.

SupplyFault
    Unsupported     there is no engine for this machine or model
    Unreachable     the hub did not answer; another time it may
    NotThere        the hub answers, but has not got it (or does not show it to us)
    Refused         what the hub has is not what was recorded, or is no such file at all
    NoRoom          this machine could not store it
"""

from __future__ import annotations


class SupplyFault(Exception):
    """The message says what, where and what to do. `again` says that the same may work later."""

    again = False


class Unsupported(SupplyFault):
    """There is nothing to fetch for this machine or model."""


class Unreachable(SupplyFault):
    """No answer that a hub would give."""

    again = True


class NotThere(SupplyFault):
    """The repository, the revision or the file does not exist, or needs a token."""

    # A release may be published a little later than the package that names it.
    again = True


class Refused(SupplyFault):
    """The bytes are not those that were recorded, or not of the kind that was asked for."""


class NoRoom(SupplyFault):
    """The disk is full, or not writable."""

    again = True
