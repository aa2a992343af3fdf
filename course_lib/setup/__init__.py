"""Make `.venv`, install the course into it, and check the installation."""
