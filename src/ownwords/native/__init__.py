"""The part in C++: optional, built at install, found and called without importing torch."""
