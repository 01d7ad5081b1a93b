"""What results mean: statistics, verdicts, cost, normality. Pure functions of values."""
