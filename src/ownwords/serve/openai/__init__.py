"""An HTTP API compatible with OpenAI's."""
