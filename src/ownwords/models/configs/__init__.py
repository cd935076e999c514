"""The model configs of all families, as in config.json; does not import torch."""
