"""Can this box measure, and is it healthy. In: what the machine, a probe and one reading tell. Out: checks
with a state and a next step.
"""
