"""The Monitor screen: turns samples into lines, independent of the terminal."""
