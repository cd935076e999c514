"""How good a model is: bits per byte, what it memorised, and the baselines beside it."""
