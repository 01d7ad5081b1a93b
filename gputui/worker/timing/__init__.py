"""How long a block of steps took, by the device's clock or the host's, and how much of it the box kept
this process from the CPU. In: a step. Out: block times in ns.
"""
