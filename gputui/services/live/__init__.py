"""The box at this moment: one thread reads the sources and publishes samples, for the monitor and for
`snapshot`; `demo` has made-up GPUs. In: sources. Out: frozen samples.
"""
