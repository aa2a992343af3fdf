"""The course folder, its sources, locks, progress steps and errors, used by every command."""
