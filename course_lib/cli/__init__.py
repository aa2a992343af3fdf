"""The command line: `main` starts a verb, the other modules hold the verbs."""
