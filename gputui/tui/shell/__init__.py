"""What all screens share: the header with their names, the line for messages, keys and their actions, the
palette, dialogs, help, the error log, and saving. A screen is a subclass of `ShellScreen`."""
