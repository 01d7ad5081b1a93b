"""Use-cases: profiles to plans, running and following runs, comparing. No terminal here."""
