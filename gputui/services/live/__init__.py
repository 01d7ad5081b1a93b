"""The current state of the machine: threads read the sources and publish samples, for the monitor and for
`snapshot`; `demo` has made-up GPUs. In: sources. Out: frozen samples."""
