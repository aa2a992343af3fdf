"""What runs inside the sandbox, beside student code: the host process and its guests."""
