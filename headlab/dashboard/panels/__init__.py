"""What several pages show, a folder for each thing: heads, jobs, masks, stored results."""
