"""The words of each language: one TOML file per language, and the rules for forms of words."""
