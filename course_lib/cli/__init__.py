"""The command line. `main` runs a verb, and the other modules define the verbs."""
