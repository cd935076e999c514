"""`ownwords make`: from a blog to a scored model, in one resumable run."""
