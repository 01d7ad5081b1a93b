"""Where metrics are read: one file and one name in `SOURCES` each."""

from __future__ import annotations

from gputui.sources.base import Source
from gputui.sources.host import HostSource
from gputui.sources.nvml import NvmlSource

__all__ = ["SOURCES", "HostSource", "NvmlSource", "Source"]

SOURCES: tuple[type[Source], ...] = (HostSource, NvmlSource)
