"""What all screens share: the header with their names, the line for messages, keys and the actions behind
them, the palette, help, the log of errors, saving and copying. A screen is a subclass of `ShellScreen`.
"""
