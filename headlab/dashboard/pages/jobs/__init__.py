"""Jobs: the queue, a job, and the form for a new one."""
