"""The sample class that `course demo` grades."""
