"""What exercises about attention share."""
