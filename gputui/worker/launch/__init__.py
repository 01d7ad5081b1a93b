"""One launch of a case, from "start" to "done": `timed_launch` warms up and times blocks,
`profiled_launch` runs a few steps more with the profiler, `malloc_tuning` keeps the heap of both the
same. In: a workload and a request. Out: messages on the channel.
"""
