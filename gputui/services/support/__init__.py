"""What all services build on: where files are, atomic writes, work in a background thread, cells of
spreadsheets, the log of errors. In: paths and texts. Out: the same, made safe. Knows nothing about runs or
results."""
