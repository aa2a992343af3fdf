"""What every command shares: the course folder, its sources, locks, progress steps and errors."""
