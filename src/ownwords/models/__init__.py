"""Model families, reading and writing of weights, quantisation and adapters.

This file imports nothing, because most modules need torch: use `from ownwords.models.decoder import
build`.
"""
