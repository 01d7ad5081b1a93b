"""Makes up what the demo shows. In: tables. Out: the samples that the monitor shows; a result file and a run
in progress for other screens."""
