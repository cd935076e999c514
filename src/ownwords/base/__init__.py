"""Base models to train from: the shipped one, and others that the user adds."""
