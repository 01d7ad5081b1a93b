"""What one run says, read from result files: which runs a selector names, speeds, costs, energies and
other figures of a case, how near to the peak it came, where its step went and what holds it back, and
whether that is what such a box reaches elsewhere. In: result files. Out: values, and their words,
tables and JSON.
"""
