"""Results for strangers: copies of runs in which only known words are left, and a report for the provider of
a box. In: result files. Out: a result file, a report or a page, and a list of what is in it.
"""
