"""What a user relies on, one module per module under test."""
