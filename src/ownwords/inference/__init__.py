"""A model at work: ids in, ids out."""
