"""How a student's kernel is born, where it runs and how it is spoken to."""
