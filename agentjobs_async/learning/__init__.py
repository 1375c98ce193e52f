"""Waits that learn from the durations of earlier jobs, and estimates of the time that a job has left."""
