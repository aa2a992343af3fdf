"""The code that runs inside the sandbox beside student code: the host and its guests."""

WRITABLE = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR")  # folders that programs write to
