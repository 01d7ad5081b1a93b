"""Whether this machine can measure, and is healthy. In: the machine, a probe and one reading. Out: checks
with a state and a next step."""
