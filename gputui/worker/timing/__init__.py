"""How long a block of steps took, by the device's clock or the host's, and how long the process waited for a
CPU meanwhile. In: a step. Out: block times in ns."""
