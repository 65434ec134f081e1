"""The door of schedules: jobs that are submitted by the clock."""
