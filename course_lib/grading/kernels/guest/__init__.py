"""What runs inside the sandbox, beside student code: zygote, kernel, lockdown, watchdog, meter."""
