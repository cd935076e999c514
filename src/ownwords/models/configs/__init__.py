"""The config of each family: the shape of a model as config.json says it; no torch."""
