"""One launch, from "start" to "done": `timed_launch` warms up and times blocks, `profiled_pass` traces a few
steps more, `malloc_tuning` keeps the heap the same meanwhile. In: workloads and requests. Out: messages.
"""
