"""The Run screen: choose what to measure, watch it, walk away and come back."""
