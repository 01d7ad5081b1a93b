"""How lines get to the terminal: lines of styled spans, the theme, the difference of two pictures in
cells, one frame in flight, input, signals, and the picture before the first reading. It knows nothing
of GPUs or runs.
"""
