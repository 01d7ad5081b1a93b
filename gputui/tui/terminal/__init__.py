"""How lines get to the terminal: lines of styled spans, the theme, the cell difference between two pictures,
flow control, input, signals, and the splash screen. Independent of GPUs and runs."""
