"""Lies here so that pytest puts this directory on the path: tests share `journals`."""
