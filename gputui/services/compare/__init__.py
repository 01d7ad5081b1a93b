"""Runs side by side. `session` reads what is asked for, `pairing` finds the rows that two sides share and has
them judged, `why` explains those that differ, `suggestions` says what would settle the others and makes a
gate of it. `rows_table`, `tables` and `evidence` are the parts of what `reports` and the screen show,
`formats` is for programs. `fleet` ranks many sides. In: selectors. Out: comparisons.
"""
