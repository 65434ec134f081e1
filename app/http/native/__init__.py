"""The door of mlxq's own: jobs as such, submitted, listed, followed, cancelled and retried."""
