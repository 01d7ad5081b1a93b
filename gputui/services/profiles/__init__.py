"""What can be measured: profiles are read and checked (`loader`), a user's step file becomes one
(`user_workload`), an interpreter with torch is chosen (`interpreters`), and all of it becomes a plan for
this machine (`planner`). In: TOML files, choices, the result of a probe. Out: a `Plan` that the recording
half executes."""
