"""What all screens share: the header with their names, the line for messages, keys and their actions, the
palette, help, the error log, saving and copying. A screen is a subclass of `ShellScreen`."""
