"""`ownwords make`: turns a blog into a trained, scored model in one resumable run."""
