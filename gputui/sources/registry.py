"""The sources whose metrics are stored with a run."""

from __future__ import annotations

from gputui.sources.base import Source
from gputui.sources.host import HostSource
from gputui.sources.nvml import NvmlSource

SOURCES: tuple[type[Source], ...] = (HostSource, NvmlSource)


def sources_of_runs() -> list[Source]:
    """One of each."""
    return [make() for make in SOURCES]
