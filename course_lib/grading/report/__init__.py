"""Read a graded lesson back and show it as a report or a table."""
