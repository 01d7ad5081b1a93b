"""Plays stored telemetry like live telemetry, and makes up what the demo shows. In: a run of a result file,
or tables. Out: the samples that the monitor shows; a result file and a run in progress for other screens."""
