"""Answers questions about the archive from its posts, with verified citations."""
