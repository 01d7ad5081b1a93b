"""Where a step went: the trace of torch.profiler, the class of each operation, the partition of the step
between them, and who holds the device's memory. In: a step. Out: a `Partition`, and allocations.
"""
