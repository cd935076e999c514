"""The scorecard for people: a page that needs nothing else, and the same in a terminal."""
