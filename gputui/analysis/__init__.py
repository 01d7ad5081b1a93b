"""What results mean: statistics, verdicts, cost, expected performance. Pure functions of values."""
