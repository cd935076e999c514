"""The search for better settings than the plan's, within a budget."""
