"""Runs in progress: started in a separate process, followed through their journal, stopped, recovered
after a crash, and alerts about them. In: a plan. Out: progress, and a stored run."""
