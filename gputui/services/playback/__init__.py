"""Plays stored telemetry like live telemetry. In: a run of a result file. Out: the samples that the
monitor shows."""
