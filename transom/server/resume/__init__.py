"""Lost sessions: what is kept of them, where, and how their client comes back."""
