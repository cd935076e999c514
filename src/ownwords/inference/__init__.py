"""Generates text with a model, from token ids to token ids."""
