"""Executes plans: supervisor, journal, sampler. Standard library, and pynvml where it is."""
