"""One launch, from "start" to "done": `timed_launch` warms up and times blocks, `profiled_pass` traces a few
steps more. In: workloads and requests. Out: messages.
"""
