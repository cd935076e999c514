"""The optional C++ library: built at install, loaded and called without importing torch."""
