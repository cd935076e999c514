"""The JSON API of the web page."""
