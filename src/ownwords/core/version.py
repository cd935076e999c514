"""The version of ownwords: here, below everything that states it."""

__version__ = "0.1.0"
