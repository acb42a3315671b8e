"""What this package needs of others: their optional packages and their private attributes."""
