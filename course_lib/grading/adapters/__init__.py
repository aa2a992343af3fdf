"""Adapters for undocumented parts of other libraries, one module for each library."""
