"""What is known of how busy engines are: what their metrics say, and what was sent to them since."""
