"""Traces of torch.profiler that people already have. In: Chrome trace files, of any program. Out: their
events, the window of steps in them, runs to store, and how two of them differ.
"""
