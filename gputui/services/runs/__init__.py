"""Runs while they happen: started in a process of their own, followed by their journal, stopped, recovered
after a crash, and what is worth ringing for. In: a plan. Out: progress, and a stored run.
"""
