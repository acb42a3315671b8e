"""What training needs around `model.fit`: schedules, optimizers. Knows no model."""
