"""Ids that sort by the time they were made."""

from __future__ import annotations

import uuid


def uuid7(milliseconds: int, bits: int) -> str:
    """A UUIDv7 (RFC 9562) of UTC milliseconds and 80 other bits, of which version and variant replace six."""
    number = milliseconds << 80 | bits
    number = number & ~(0xF << 76) | 0x7 << 76
    number = number & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=number))
