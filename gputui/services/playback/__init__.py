"""Stored telemetry as if it were live. In: a run of a result file. Out: the samples that the monitor
shows.
"""
