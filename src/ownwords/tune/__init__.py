"""`ownwords tune`: the search for better settings than the plan's, within a time budget."""
