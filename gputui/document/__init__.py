"""What a command, a report and a screen say, before anybody knows where it is read: tables, code, links.

A table is laid out once, here: one function decides which columns fit, and each form (terminal, Markdown,
HTML) is a writer of the same parts. Without this room every command would drop columns differently, and one
comparison would look different wherever it is shown."""
