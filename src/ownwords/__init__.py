"""A language model of your own writing, on your own machine."""

__version__ = "0.1.0"
