"""What encoder and decoder layers have in common: norms, feed-forwards, rotary angles, paged attention."""
