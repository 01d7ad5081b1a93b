"""NVIDIA GPUs for the live view."""
