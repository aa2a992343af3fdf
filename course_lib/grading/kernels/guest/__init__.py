"""What runs inside the sandbox, beside student code: zygote, kernel, lockdown, watchdog, meter."""

NO_FRONT_END = "course_no_front_end"  # in the metadata of a request: nobody watches the cell run
