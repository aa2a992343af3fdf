"""What grading does to other libraries beyond their documented interfaces, one module for each."""
