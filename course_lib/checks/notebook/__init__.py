"""What a student calls in a notebook: `check`, `hint`, `carry_on` and `progress`."""
