"""The scorecard for people: a self-contained page, and the same in a terminal."""
