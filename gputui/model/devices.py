"""How telemetry numbers the devices: GPUs as the driver does, and the host below them."""

from __future__ import annotations

HOST = -1
"""The number of the host."""
