"""Run a rebuilt notebook in the sandbox and judge what was observed."""
