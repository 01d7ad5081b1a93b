"""Runs side by side. `session` reads what is asked for, `pairing` finds the rows that two sides share and
has them judged, `why` explains those that differ, `gate` makes a check of it, and text, Markdown, CSV,
JSON, HTML and the screen are views of the same rows. In: selectors. Out: comparisons.
"""
