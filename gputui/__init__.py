"""gputui: profile GPUs and CPUs, compare runs across machines and runtimes."""

__version__ = "0.1.0"
