"""The result file and the journal: written once, merged, and opened safely whoever wrote them."""
