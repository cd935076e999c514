"""The model in the box, and others one may begin with."""
