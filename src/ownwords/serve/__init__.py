"""`ownwords serve`: the local web page, and an HTTP API compatible with OpenAI's."""
