"""Uses what this package needs of others: optional packages and private attributes."""
