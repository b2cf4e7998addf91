"""What several pages show: masks and their accuracy, stored results, jobs, attention, reports."""
