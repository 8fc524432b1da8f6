"""What tidegate costs, measured beside what a user would do without it. See README.md."""
