"""Results as blocks, and the three renderers that draw them: HTML, terminal, JSON."""
