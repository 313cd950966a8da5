"""Cross-validation: one run per fold, as one job that can be stopped and continued."""
