"""Drafts of the author's: checked, written from notes, and rewritten in the author's manner."""
