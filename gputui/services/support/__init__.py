"""What every room of the services stands on: where files lie, writing a file whole or not at all, work in
a thread behind a screen, text for encodings and for spreadsheets, the log of errors. In: paths and
texts. Out: the same, made safe. It knows nothing of runs or results.
"""
