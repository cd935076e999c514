"""The main job: from a blog to a model that was scored, in one go."""
