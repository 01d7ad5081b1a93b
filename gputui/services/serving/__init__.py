"""LLM servers under load: from a URL to the plan of a run, and from a stored run to its curve and its limit.

In: options, profiles in `profiles/serving`, and stored runs. Out: a plan for the supervisor, whose worker
offers the loads (`worker/serving`), and rows and sentences for every form in which a run is shown.
"""
