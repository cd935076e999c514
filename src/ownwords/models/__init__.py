"""Model families, their weights in and out, and what is attached to them. Importing this is free.

The parts need torch, so nothing is imported here: `from ownwords.models.decoder import build`.
"""
