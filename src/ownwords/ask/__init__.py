"""Questions to the archive, answered with what stands in it."""
