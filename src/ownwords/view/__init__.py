"""Results as blocks, and what draws them: HTML and the terminal."""
