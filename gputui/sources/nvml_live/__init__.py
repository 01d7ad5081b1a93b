"""NVIDIA GPUs for the live view."""

from __future__ import annotations

from gputui.sources.nvml_live.source import NvmlLive

__all__ = ["NvmlLive"]
