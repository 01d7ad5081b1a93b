"""What can be measured: profiles are read and checked (`loader`), a user's own step becomes one
(`user_workload`), an interpreter with torch is chosen (`interpreters`), and all of it becomes a plan
for this machine (`planner`). In: TOML files, choices, what a probe found. Out: a `Plan` that the
recording half executes.
"""
