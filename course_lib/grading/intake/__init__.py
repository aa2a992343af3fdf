"""Find submissions, read them without trusting them, and rebuild the notebook to grade."""
