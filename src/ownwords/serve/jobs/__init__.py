"""The jobs that the page starts: each an `ownwords` command in a process of its own."""
