"""The interface that tools written for OpenAI speak."""
