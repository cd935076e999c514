"""Evaluates models: bits per byte, memorisation, fluency and style, compared with baselines."""
