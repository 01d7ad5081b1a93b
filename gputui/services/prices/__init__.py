"""What a machine costs per hour: stated by the user, or from the table of instances. In: options and a
machine. Out: a `Price` or the reason why there is none."""
