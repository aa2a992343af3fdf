"""Steps, mistakes and properties that exercises about attention share."""
