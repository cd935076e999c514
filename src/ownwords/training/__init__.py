"""Trains a new or existing model on tokens, as well as this machine and the time allow."""
