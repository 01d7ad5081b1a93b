"""Use cases: profiles to plans, running and following runs, comparing. Does not touch the terminal."""
