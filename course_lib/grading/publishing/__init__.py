"""Write results to the gradebook, `autograded/` and the feedback pages."""
