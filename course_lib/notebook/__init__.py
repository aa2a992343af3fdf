"""What a notebook calls: `check`, `hint`, `carry_on`, `progress`, `certificate` and `hunt`."""
