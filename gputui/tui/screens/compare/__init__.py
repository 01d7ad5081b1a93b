"""The Compare screen: runs side by side, and the evidence of each row."""
